"""One kernel on each GPU, in a child with a time limit: what no query can tell, such as a card that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Sequence

Json = Dict[str, Any]

CHILD_S = 60.0
SAID = 2000
NO_TORCH = "fleetctl-no-torch"

# By the environment's torch: a kernel of torch's own, its result checked.
TORCH = """
try:
    import torch
except (ImportError, OSError) as error:
    raise SystemExit("fleetctl-no-torch: %s" % error)
torch.cuda.init()
x = torch.full((1024,), 2.0, device="cuda")
total = float((x * x).sum().item())
torch.cuda.synchronize()
assert total == 4096.0, "the GPU computed %r, not 4096.0" % total
print("fleetctl-ok torch " + torch.__version__ + " sm" + "".join(map(str, torch.cuda.get_device_capability())))
"""

# By the driver alone: a context, memory, a memset (the driver's own kernel), read back.
DRIVER = """
import ctypes
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    raise SystemExit("the driver's library cannot be loaded: %s" % error)
def call(name, *args):
    status = getattr(cuda, name)(*args)
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(status, ctypes.byref(text))
        raise SystemExit("%s: error %d, %s" % (name, status, (text.value or b"?").decode()))
call("cuInit", 0)
device, context = ctypes.c_int(), ctypes.c_void_p()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
memory, back = ctypes.c_uint64(), (ctypes.c_uint32 * 1024)()
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
call("cuMemsetD32_v2", memory, ctypes.c_uint(4096), ctypes.c_size_t(1024))
call("cuCtxSynchronize")
call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(4096))
if set(back) != {4096}:
    raise SystemExit("the GPU's memory holds %r, not what was written" % sorted(set(back))[:4])
call("cuMemFree_v2", memory)
print("fleetctl-ok driver")
"""


def look(gpus: Sequence[Json], python: Optional[str] = None, seconds: float = CHILD_S) -> List[Json]:
    """``{"gpu", "ok", "seconds", "error", "by": "torch …" or "driver", "driver_ok"}`` of each GPU, all at once.

    ``driver_ok`` where torch's kernel failed: whether the driver alone runs one, so that the fault is not the card's.
    ``gpus``: ``{"index", "uuid", "state", "said"}``; a dead one is not tried. ``python`` is the interpreter of an
    environment with torch; without one, or where torch cannot be imported, libcuda alone is used. A child is killed
    after ``seconds``.
    """
    if not gpus:
        return []
    with ThreadPoolExecutor(len(gpus)) as pool:
        return list(pool.map(lambda gpu: _one(gpu, python, seconds), gpus))


def _one(gpu: Json, python: Optional[str], seconds: float) -> Json:
    if gpu.get("state", "ok") != "ok":
        return _result(gpu, 0.0, "", gpu["said"], "nvidia-smi", None)
    begin = time.monotonic()
    if python is not None:
        ran, said = _child([python, "-c", TORCH], gpu, seconds)
        if ran or not (NO_TORCH in said or said.startswith(python)):
            taken = time.monotonic() - begin
            by_driver = None if ran else bool(_by_driver(gpu, seconds)[0])
            return _result(gpu, taken, ran, said, "torch", by_driver)
    ran, said = _by_driver(gpu, seconds)
    return _result(gpu, time.monotonic() - begin, ran, said, "driver", bool(ran))


def _result(gpu: Json, taken: float, ran: str, said: str, tried: str, driver_ok: Optional[bool]) -> Json:
    return {
        "gpu": gpu["index"],
        "ok": bool(ran),
        "seconds": round(taken, 3),
        "error": None if ran else said,
        "by": ran or tried,
        "driver_ok": driver_ok,
    }


def _by_driver(gpu: Json, seconds: float) -> "tuple[str, str]":
    return _child([sys.executable, "-I", "-S", "-c", DRIVER], gpu, seconds)


def _child(argv: List[str], gpu: Json, seconds: float) -> "tuple[str, str]":
    """What ran it, empty where it failed; and the end of what was said."""
    visible = gpu.get("uuid") or str(gpu["index"])
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return "", f"{argv[0]}: {error.strerror}"
    try:
        output, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(child)
        return "", f"the kernel has not ended within {seconds:g} s"
    text = output.decode(errors="replace").strip()
    last = text.splitlines()[-1:] or [""]
    if child.returncode == 0 and last[0].startswith("fleetctl-ok "):
        return last[0][len("fleetctl-ok ") :], ""
    if child.returncode < 0:
        text += f"\nended by signal {-child.returncode}"
    return "", text[-SAID:].strip() or f"status {child.returncode}"


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """Kill the session; one that hangs in the driver is left to the kernel and not waited for."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(1.0)
    except (OSError, subprocess.TimeoutExpired):
        return
