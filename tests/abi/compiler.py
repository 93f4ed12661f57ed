"""Small libraries, compiled here by gcc, and by nvcc where it is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

NVCC = shutil.which("nvcc")


class Workshop:
    """A folder to compile libraries in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def library(self, name: str, code: str, *flags: str, cxx: bool = False) -> Path:
        """Compile ``code`` (C, or C++ with ``cxx``) to the shared library ``name``; flags come last."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["g++" if cxx else "gcc", "-shared", "-fPIC", "-o", str(path)]
        language = ["-x", "c++" if cxx else "c", "-", "-x", "none"]
        subprocess.run([*command, *language, *flags], input=code, text=True, check=True)
        return path

    def stand_in(self, path: str, soname: str, *functions: str, flags: tuple[str, ...] = ()) -> Path:
        """A library that gives empty functions under another library's name."""
        code = "".join(f"void {function}(void) {{}}\n" for function in functions)
        return self.library(path, code, f"-Wl,-soname,{soname}", *flags)

    def versions(self, text: str) -> str:
        """A flag for a version script."""
        path = self.folder / "versions.map"
        path.write_text(text)
        return f"-Wl,--version-script={path}"


def without_section_headers(library: Path) -> Path:
    """A copy of a 64-bit little-endian library in which the section headers are gone, as ``sstrip`` leaves it."""
    data = bytearray(library.read_bytes())
    table = int.from_bytes(data[0x28:0x30], "little")
    data[0x28:0x30] = bytes(8)
    data[0x3C:0x40] = bytes(4)
    stripped = library.with_name(library.name + ".stripped")
    stripped.write_bytes(data[:table])
    return stripped
