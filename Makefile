# Two commands: `make demo` shows fleetctl at work on two lab hosts, `make test` runs the tests.
# The lab boots real systemd hosts, so both need root (sudo is used where you are not root).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SUDO   := $(if $(filter 0,$(shell id -u)),,sudo)
# torch for the CPU: the registry's own build brings gigabytes of CUDA. An index that cannot be reached is passed over.
PIP    := $(BIN)/python -m pip --retries 1 --disable-pip-version-check
TORCH  := --extra-index-url https://download.pytorch.org/whl/cpu
SYSTEM := systemd-container openssh-server iproute2 rsync python3-venv sudo zsh fish tcsh haproxy
# What tests look at reports with: a browser, and of TeX Live what makes the PDF (600 MB, 40 s).
LOOK   := chromium texlive-latex-recommended texlive-pictures lmodern

.PHONY: demo test check docs faults bench-doctor bench-fleet lab-down clean
demo: $(VENV)/.ready .fleetctl/models/smollm2-135m/model.safetensors
	$(SUDO) env PATH="$(CURDIR)/$(BIN):$$PATH" FLEETCTL_FLEET="$(CURDIR)" FLEETCTL_INVENTORY=inventories/lab $(BIN)/python -m fleetctl.lab.demo

# Two pytests at once, each with a lab of its own; `pytest` alone runs all of them one after the other.
test: $(VENV)/.ready $(VENV)/.look .fleetctl/models/smollm2-135m/model.safetensors check
	$(SUDO) env PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.lanes

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.ready: pyproject.toml $(VENV)/.system
	@echo "== Python packages into $(VENV) (once; torch and triton are about 200 MB each)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --progress-bar on $(TORCH) 'torch==2.13.0'
	$(PIP) install --progress-bar on -e '.[dev]'
	@touch $@

$(VENV)/.system: Makefile
	@command -v systemd-nspawn sshd ip rsync sudo zsh fish tcsh haproxy >/dev/null && $(PYTHON) -c 'import ensurepip' 2>/dev/null \
	  || { echo "== system packages: $(SYSTEM)"; \
	       $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qy $(SYSTEM); }
	@mkdir -p $(VENV) && touch $@

$(VENV)/.look: $(VENV)/.system
	@command -v chromium >/dev/null && command -v pdflatex >/dev/null && kpsewhich pgfplots.sty booktabs.sty lmodern.sty >/dev/null \
	  || { echo "== packages to test reports with: $(LOOK)"; \
	       $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $(LOOK); }
	@touch $@

.fleetctl/models/smollm2-135m/model.safetensors: $(VENV)/.ready
	$(BIN)/python -m fleetctl.standalone.convert --out $(@D)

# Every fault at every step, in 45 minutes; docs/reliability.md then says what was survived. `ARGS='-k power-cut'` takes a part.
faults: $(VENV)/.ready
	$(SUDO) env PATH="$(CURDIR)/$(BIN):$$PATH" FLEETCTL_SEQUENCES=20 $(BIN)/python -m pytest -m "faults or lab" tests/faults tests/router $(ARGS)
	$(BIN)/python -m tests.faults.report --take

bench-doctor: $(VENV)/.ready
	$(BIN)/python -m benchmarks.doctor

# The peers have an environment of their own: nothing of fleetctl needs them.
bench-fleet: $(VENV)/.ready $(VENV)-bench/.ready
	$(SUDO) env PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks.fleet --peers $(VENV)-bench \
	  --json benchmarks/results/fleet.json
	$(SUDO) env PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks.fleet.memory --json benchmarks/results/fleet_memory.json

$(VENV)-bench/.ready:
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --disable-pip-version-check \
	  'pyinfra==3.10.*' 'ansible-core==2.19.*' 'mitogen==0.3.54'
	@touch $@

lab-down:
	$(SUDO) $(BIN)/python -m fleetctl lab down

docs: $(VENV)/.ready
	$(BIN)/python -m tests.faults.report
	$(BIN)/python -m fleetctl.doctor.document docs/doctor.md

clean:
	rm -rf $(VENV) $(VENV)-bench .fleetctl
