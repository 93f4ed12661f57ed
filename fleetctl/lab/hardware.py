"""What else of a GPU host a lab host has on paper: CUDA toolkits, and a kernel log that a test may write to.

This machine's own toolkits and its kernel's log are hidden from the host.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from fleetctl.lab.paths import HostPaths

LOG = "etc/fleetctl-lab/kernel.log"
_DMESG = f"#!/bin/sh\n# A lab host's kernel log: its real kernel is the machine's.\nexec cat /{LOG}\n"
_BOOT = (
    "2026-01-01T00:00:01,000000+00:00 NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n"
)
_LOCAL = Path("/usr/local")


def install(upper: Path) -> None:
    """Lay a host's own kernel log into the layer it is made from, and hide this machine's toolkits."""
    _write(upper / "usr/local/bin/dmesg", _DMESG, 0o755)
    _write(upper / LOG, _BOOT)
    hidden = [*_LOCAL.glob("cuda*"), *_LOCAL.glob("bin/nvcc")]
    for place in hidden:
        whiteout = upper / str(place).lstrip("/")
        whiteout.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(whiteout, stat.S_IFCHR, os.makedev(0, 0))


def kernel_says(host: str, *lines: str) -> None:
    """Add lines to a host's kernel log, each with a time where it has none."""
    with (HostPaths(host).root / LOG).open("a") as log:
        for line in lines:
            log.write(line if line[:2] == "20" else f"2026-01-01T00:10:00,000000+00:00 {line}")
            log.write("\n")


def forget(host: str) -> None:
    """The kernel log as after a boot, and no toolkit."""
    _write(HostPaths(host).root / LOG, _BOOT)
    for place in (HostPaths(host).root / "usr/local").glob("cuda*"):
        _remove(place)


def toolkit(host: str, version: str = "12.8", build: str = "12.8.93", *, default: bool = True) -> None:
    """Give a host a CUDA toolkit of this version at /usr/local/cuda-VERSION; the default one as /usr/local/cuda too."""
    local = HostPaths(host).root / "usr/local"
    root = local / f"cuda-{version}"
    said = {
        "cuda": {"name": "CUDA SDK", "version": f"{version}.1"},
        "cuda_nvcc": {"name": "CUDA NVCC", "version": build},
    }
    _write(root / "version.json", json.dumps(said))
    tools = f"Cuda compilation tools, release {version}, V{build}"
    _write(
        root / "bin/nvcc", f"#!/bin/sh\necho 'nvcc: NVIDIA (R) Cuda compiler driver'\necho '{tools}'\n", 0o755
    )
    if default:
        link = local / "cuda"
        link.unlink(missing_ok=True)
        link.symlink_to(f"/usr/local/cuda-{version}")


def _remove(place: Path) -> None:
    if place.is_symlink() or place.is_file():
        place.unlink()
        return
    for child in place.iterdir():
        _remove(child)
    place.rmdir()


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
