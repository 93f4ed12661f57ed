# On the GPU host, from the repository's folder: source benchmarks/gpu/unpack.sh [PARTS]
# Takes in the pieces of `pack.sh` that are there, however many calls they come by, and sets the environment up. Afterwards
# $TARGET and $DRAFTER are the models' folders, and `python3 -m benchmarks.gpu PHASE …` works.
_home=${FLEETCTL_GPU:-/srv/fleetctl-gpu}; mkdir -p $_home/{parts,site,models}
[ -d "${1:-}" ] && cp "$1"/* $_home/parts/
unset PYTHONDONTWRITEBYTECODE                     # without .pyc files a server starts 15 to 20 s later
_joined() {  # NAME: whether all pieces are there, and were not unpacked before
  [ ! -e "$_home/$1.done" ] && [ -e "$_home/parts/$1.count" ] &&
    [ "$(ls "$_home/parts/$1".tar.xz.? 2>/dev/null | wc -l)" = "$(cat "$_home/parts/$1.count")" ]
}
if _joined site; then
  cat $_home/parts/site.tar.xz.? | tar -xJ -C $_home/site --no-same-owner && touch $_home/site.done
fi
if [ -e $_home/site.done ] && [ $_home/parts/patch.tar.xz -nt $_home/patch.done ]; then
  tar -xJf $_home/parts/patch.tar.xz -C $_home/site --no-same-owner && touch $_home/patch.done
  python3 -m compileall -q -j 0 $_home/site > /dev/null 2>&1
  (cd "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')" &&
    python3 -m compileall -q -j 0 torch triton numpy scipy sympy aiohttp safetensors requests httpx jinja2) > /dev/null 2>&1
fi
if _joined target; then
  cat $_home/parts/target.tar.xz.? | tar -xJ -C $_home/models --no-same-owner && touch $_home/target.done
fi
[ -d models ] && cp -a models/. $_home/models/
export TARGET=$_home/models/smollm2-135m DRAFTER=$_home/models/smollm2-135m-dflash
export PYTHONPATH=$_home/site${PYTHONPATH:+:$PYTHONPATH} LD_LIBRARY_PATH=$_home/site/_lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ -e $_home/target.done ] && [ -e $_home/site.done ] && [ -d $_home/models/smollm2-135m-tokenizer ] && [ ! -d $TARGET ]; then
  python3 -m fleetctl.standalone.convert --out $TARGET --gguf $_home/models/*.gguf --tokenizer $_home/models/smollm2-135m-tokenizer
fi
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1 CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
