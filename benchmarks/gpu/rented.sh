#!/bin/bash
# fleetctl as its user has it on a rented GPU container: no systemd, no way out. On the host, from the repository, once
# `unpack.sh` has all pieces of `pack.sh`. Each phase ends within ten minutes; what was said is in $OUT/said.txt.
#   benchmarks/gpu/rented.sh setup             sshd, supervisord, fleetctl's environment, the base environment, an inventory
#   benchmarks/gpu/rented.sh look              doctor, the environment built from the patch set, what a deploy would do
#   benchmarks/gpu/rented.sh serve             deploy, swaps through all modes, one that fails, rollback, status, history
#   benchmarks/gpu/rented.sh bench ROUNDS      the five prompts of each mode, interleaved; goes on behind the call's end
#   benchmarks/gpu/rented.sh report SECONDS    waits so long for the bench at most, then report, records to $OUT
#   benchmarks/gpu/rented.sh sweep             budgets of 8 to 64 beside no drafting and a chain, and what they made of it
#   benchmarks/gpu/rented.sh end
# GPU=1 takes another card than the first.
set -uo pipefail
home=${FLEETCTL_GPU:-/srv/fleetctl-gpu}; here=$home/rented; fleet=$here/fleet; OUT=${OUT:-$here/out}; repository=$PWD
python=${PYTHON_THERE:-3.12}; env=/opt/sglang/env; sites=$env/lib/python$python/site-packages
mkdir -p "$here" "$OUT"
unset PYTHONPATH PYTHONDONTWRITEBYTECODE
image=$(PATH=${PATH//$here\/venv\/bin:/} command -v python3)
export FLEETCTL_FLEET=$fleet PATH=$here/venv/bin:$PATH COLUMNS=140

said() {  # SECONDS COMMAND…: run it, at most so long, and write down what it said, how it ended and how long it took
  local limit=$1 begun=$SECONDS status=0; shift
  echo "\$ $*" | tee -a "$OUT/said.txt"
  timeout --signal=INT --kill-after=30 "$limit" "$@" 2>&1 < /dev/null | tee -a "$OUT/said.txt"
  status=${PIPESTATUS[0]}
  echo "[exit $status, $((SECONDS - begun)) s]" | tee -a "$OUT/said.txt"
  return "$status"
}

setup() {
  set -e
  mkdir -p "$here/host" && cat "$home"/parts/host.tar.xz.? | tar -xJ -C "$here/host" --no-same-owner
  if ! command -v sshd > /dev/null; then
    for deb in "$here"/host/debs/*.deb; do dpkg -x "$deb" "$here/debs"; done
    cp "$here/debs/usr/sbin/sshd" /usr/sbin/ && cp "$here"/debs/usr/bin/ssh* /usr/bin/
    mkdir -p /usr/lib/openssh && cp -r "$here"/debs/usr/lib/openssh/* /usr/lib/openssh/
    for library in "$here"/debs/{usr/,}lib/x86_64-linux-gnu/*.so.*; do
      if ! ldconfig -p | grep -q "$(basename "$library") "; then cp -a "$library" /usr/local/lib/; fi
    done
    cp "$home/site/_lib/libnuma.so.1" /usr/local/lib/ 2> /dev/null || true
    libcuda=$(ldconfig -p | grep -q libcuda.so.1 || find /usr/local/nvidia /usr/lib64 -name libcuda.so.1 2> /dev/null | head -1)
    if [ -n "$libcuda" ]; then dirname "$libcuda" > /etc/ld.so.conf.d/fleetctl-cuda.conf; fi
    ldconfig
    grep -q '^sshd:' /etc/passwd || echo 'sshd:x:104:65534::/run/sshd:/usr/sbin/nologin' >> /etc/passwd
    smi=$(command -v nvidia-smi) && [ "$(dirname "$smi")" != /usr/bin ] && ln -sf "$smi" /usr/local/bin/nvidia-smi
  fi
  # Services have the system's PATH; kernels are compiled by a ninja that may lie beside the image's torch.
  command -v ninja > /dev/null && [ ! -e /usr/local/bin/ninja ] && ln -s "$(command -v ninja)" /usr/local/bin/ninja
  mkdir -p /run/sshd /etc/supervisor/conf.d
  for key in host_key id; do [ -e "$here/$key" ] || ssh-keygen -q -t ed25519 -N '' -f "$here/$key"; done
  cp "$here/id.pub" "$here/authorized_keys"
  echo "[127.0.0.1]:2222 $(cat "$here/host_key.pub")" > "$here/known_hosts"
  printf '%s\n' 'ListenAddress 127.0.0.1:2222' "HostKey $here/host_key" "AuthorizedKeysFile $here/authorized_keys" \
    'PidFile none' 'UsePAM no' 'StrictModes no' 'PasswordAuthentication no' 'PermitRootLogin yes' > "$here/sshd_config"
  # fleetctl's own environment, from the wheels that travelled; numpy is the image's.
  $image -m venv --without-pip "$here/venv"
  packages=$(ls -d "$here"/venv/lib/python3*/site-packages); images=$($image -c 'import numpy; print(numpy.__path__[0])')
  $image -m pip install -q --no-index --no-deps --no-compile --target "$packages" --upgrade "$here"/host/wheels/*.whl
  printf '%s\n' "$repository" "${images%/numpy}" > "$packages/fleetctl.pth"
  "$here/venv/bin/python" -m compileall -q "$packages" fleetctl > /dev/null
  for program in fleetctl:fleetctl.cli.app supervisord:supervisor.supervisord supervisorctl:supervisor.supervisorctl; do
    script=$here/venv/bin/${program%:*}
    printf '#!%s\nfrom %s import main\nmain()\n' "$here/venv/bin/python" "${program#*:}" > "$script" && chmod +x "$script"
  done
  printf '%s\n' '[unix_http_server]' 'file=/var/run/supervisor.sock' '[supervisord]' 'user=root' \
    "logfile=$here/supervisord.log" 'pidfile=/var/run/supervisord.pid' '[rpcinterface:supervisor]' \
    'supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface' \
    '[supervisorctl]' 'serverurl=unix:///var/run/supervisor.sock' \
    '[program:sshd]' "command=/usr/sbin/sshd -D -e -f $here/sshd_config" "stdout_logfile=$here/sshd.log" \
    'redirect_stderr=true' '[include]' 'files = /etc/supervisor/conf.d/*.conf' > "$here/supervisord.conf"
  setsid "$here/venv/bin/supervisord" -c "$here/supervisord.conf" < /dev/null > /dev/null 2>&1
  for _ in $(seq 50); do ssh -F none -i "$here/id" -p 2222 -o UserKnownHostsFile="$here/known_hosts" -o BatchMode=yes \
    root@127.0.0.1 true 2> /dev/null && break; sleep 0.2; done
  # The base: what was brought, sglang as it was published, torch of the image's own Python.
  if [ ! -d $env ]; then
    /usr/bin/python$python -m venv --without-pip $env
    cp -a "$home/site/." $sites/ && rm -rf $sites/sglang
    $image -m zipfile -e "$here"/host/sglang-0.5.11-*.whl "$here/published" && cp -a "$here/published/." $sites/
    $image -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > $sites/torch-of-the-image.pth
  fi
  inventory
  set +e
}

inventory() {
  mkdir -p "$fleet"/{inventories,envs}
  cp -r "$repository/templates" "$repository/playbooks" "$repository/runtime_patches" "$fleet/"
  cat > "$fleet/envs/sglang-here.yaml" <<Y
name: sglang-here
python: "$python"
base: {path: $env}
patches: [ddtree-sglang-0.5.11]
imports: [torch, sgl_kernel, flashinfer, soundfile, sglang.srt.speculative.ddtree_worker]
abi: cp${python/./}-torch2.11
Y
  cat > "$fleet/inventories/gpu.yaml" <<Y
host: gpu
ssh: {hostname: 127.0.0.1, port: 2222, user: root, identity_file: $here/id, known_hosts: $here/known_hosts}
gpus: {count: $(nvidia-smi -L | wc -l), name: NVIDIA H200, arch: sm90, memory_mib: 143771}
default_slot: main
slots: {main: {gpus: [${GPU:-0}], port: 30000}}
environments: {sglang: {spec: sglang-here}}
models:
  smollm2-135m: {path: $home/models/smollm2-135m}
  smollm2-135m-dflash: {path: $home/models/smollm2-135m-dflash}
services:
Y
  service autoregressive autoregressive
  service dflash linear
  service shadow shadow 'speculative-ddtree-budget: 15, speculative-ddtree-topk: 8, '
  service ddtree tree 'speculative-ddtree-budget: 15, speculative-ddtree-topk: 8, '
  service broken tree 'speculative-ddtree-budget: 15, speculative-ddtree-topk: 8, tokenizer-path: /nowhere, '
}

service() {  # NAME MODE ARGUMENTS
  local drafter=''; [ "$2" = autoregressive ] || drafter='    drafter: smollm2-135m-dflash'
  cat >> "$fleet/inventories/gpu.yaml" <<Y
  $1:
    slot: main
    engine: sglang
    mode: $2
    environment: sglang
    model: smollm2-135m
$drafter
    unit: sglang-$1.service
    args: {${3:-}attention-backend: triton, sampling-backend: pytorch, grammar-backend: none, page-size: 1,
      disable-piecewise-cuda-graph: true, disable-flashinfer-autotune: true, mem-fraction-static: 0.3,
      max-running-requests: 8, cuda-graph-max-bs: 8}
    env: {CUDA_HOME: /usr/local/cuda, HF_HUB_OFFLINE: "1", TRANSFORMERS_OFFLINE: "1", TOKENIZERS_PARALLELISM: "false",
      NCCL_NVLS_ENABLE: "0", TORCH_SYMM_MEM_DISABLE_MULTICAST: "1", NVSHMEM_DISABLE_NVLS: "1"}
    deadlines: {drain: 20, stop: 20, free: 30, ready: 240, generate: 30}
Y
}

look() {
  said 30 fleetctl hosts
  said 120 fleetctl doctor gpu
  said 60 fleetctl env verify "gpu:$env"
  said 300 fleetctl env build gpu sglang-here
  said 60 fleetctl deploy gpu --service ddtree --plan
}

serve() {
  said 300 fleetctl deploy gpu --service autoregressive
  for pair in 'autoregressive dflash' 'dflash shadow' 'shadow ddtree'; do said 200 fleetctl swap $pair; done
  said 200 fleetctl swap ddtree broken
  said 60 fleetctl status gpu
  said 200 fleetctl rollback gpu
  said 30 fleetctl history gpu
  said 60 fleetctl doctor gpu
}

bench() {
  setsid fleetctl bench gpu autoregressive dflash shadow ddtree --repeats "${1:-2}" < /dev/null > "$here/bench.log" 2>&1 &
  echo $! > "$here/bench.pid"; sleep 2; cat "$here/bench.log"
}

report() {
  local end=$((SECONDS + ${1:-500}))
  while [ $SECONDS -lt $end ] && kill -0 "$(cat "$here/bench.pid")" 2> /dev/null; do sleep 1; done
  tail -60 "$here/bench.log" | tee -a "$OUT/said.txt"
  kept report
}

kept() {  # NAME: the last run's figures, page and records
  said 60 fleetctl bench show last
  said 60 fleetctl report last -o "$OUT/$1.html" --latex "$OUT/$1"
  gzip -9c "$(ls -t "$fleet"/.fleetctl/bench/*/records.jsonl | head -1)" > "$OUT/$1.jsonl.gz"
}

sweep() {
  sed 's/^  budget:.*/  budget: [8, 15, 32, 64]/; s/^  topk:.*/  topk: [8]/; s/^repeats:.*/repeats: 2/' \
    "$fleet/playbooks/bench/sweep-ddtree.yaml" > "$fleet/playbooks/bench/sweep-here.yaml"
  said 550 fleetctl sweep gpu sweep-here
  kept sweep
}

end() {
  said 60 fleetctl stop gpu
  "$here/venv/bin/supervisorctl" -c "$here/supervisord.conf" shutdown
}

while [ $# -gt 0 ]; do
  phase=$1; shift
  case $phase in
    setup | look | serve | sweep | end) "$phase" ;;
    bench | report) "$phase" "${1:-}"; shift ;;
    *) echo "no phase $phase; see the head of $0" >&2; exit 2 ;;
  esac
done
