"""Shared libraries with the SONAME, needs and symbols asked for, compiled by gcc."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

TORCH_CHECK = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
CUDA_CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"
MESSAGE_LOGGER = "_ZN3c1013MessageLoggerC1ENS_14SourceLocationEib"


def library(
    soname: str,
    exports: Sequence[str] = (),
    wants: Sequence[str] = (),
    needed: Sequence[str] = (),
    runpath: str = "",
) -> bytes:
    """An ELF shared object: ``wants`` are its undefined symbols, ``needed`` the SONAMEs it asks for."""
    lines = [f'void e{n}(void) __asm__("{name}"); void e{n}(void) {{}}' for n, name in enumerate(exports)]
    lines += [f'extern void w{n}(void) __asm__("{name}");' for n, name in enumerate(wants)]
    lines += [f"void (*p{n})(void) = w{n};" for n in range(len(wants))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        beside = []
        for want in needed:
            _compile(folder / want, "", [f"-Wl,-soname,{want}"])
            beside.append(str(folder / want))
        options = [f"-Wl,-soname,{soname}", "-Wl,--no-as-needed", *beside]
        options += [f"-Wl,-rpath,{runpath}", "-Wl,--enable-new-dtags"] if runpath else []
        _compile(folder / "made.so", "\n".join(lines), options)
        return (folder / "made.so").read_bytes()


def _compile(path: Path, source: str, options: Sequence[str]) -> None:
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-s",
        "-x",
        "c",
        "-",
        "-x",
        "none",
        "-o",
        str(path),
        *options,
    ]
    done = subprocess.run(command, input=source, text=True, capture_output=True, timeout=280)
    assert done.returncode == 0, done.stderr
