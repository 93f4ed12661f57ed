"""Environments made of stand-ins for what a bill of materials describes: names, RECORDs, SONAMEs, no code."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from pathlib import Path
from typing import Any

Bom = dict[str, Any]


def write_environment(venv: Path, bom: Bom) -> None:
    """Fill the site-packages of an empty venv with what ``bom`` says is there."""
    site = next(venv.glob("lib/python3.*/site-packages"))
    lead = f"{bom['site_packages'][0]}/"
    inside = {one["path"]: one["path"].removeprefix(lead) for one in bom["extensions"]}
    tag = site.parent.name.removeprefix("python").replace(".", "")
    libraries: dict[str, list[str]] = {}
    linker = _Linker(venv.parent / "stubs")
    for one in bom["extensions"]:
        path = inside[one["path"]].replace("cpython-312", f"cpython-{tag}")
        linker.link(site / path, one["soname"], one["needed"])
        libraries.setdefault(one["distribution"], []).append(path)
    for entry in bom["distributions"]:
        _write_distribution(site, entry, libraries.get(entry["name"], []))
    for name in bom["unowned"]["files"]:
        _write(site / name.removeprefix(lead), b"# copied\n")


def _write_distribution(site: Path, entry: Bom, libraries: list[str]) -> None:
    modules = [f"{package}/{name}".lstrip("/") for package, names in _paths(entry) for name in names]
    packages = {str(parent) for module in modules for parent in Path(module).parents if str(parent) != "."}
    files = {f"{module}.py" for module in modules if module not in packages}
    files |= {f"{package}/__init__.py" for package in packages}
    if entry["imports"] == ["nvidia"]:
        files = set()
    for name in files:
        _write(site / name, b"")
    if entry["name"] == "torch":
        _write(site / "torch" / "version.py", f"__version__ = {entry['version']!r}\n".encode())
        files = {*files - {"torch.py"}, "torch/version.py", "torch/__init__.py"}
        _write(site / "torch" / "__init__.py", b"")
        (site / "torch.py").unlink(missing_ok=True)
    info = f"{entry['name'].replace('-', '_')}-{entry['version']}.dist-info"
    requires = "".join(f"Requires-Dist: {text}\n" for text in entry["requires"])
    head = f"Metadata-Version: 2.1\nName: {entry['name']}\nVersion: {entry['version']}\n{requires}"
    _write(site / info / "METADATA", head.encode())
    _write(site / info / "INSTALLER", f"{entry['installer']}\n".encode())
    rows = [
        _row(site, name) for name in sorted([*files, *libraries, f"{info}/METADATA", f"{info}/INSTALLER"])
    ]
    _write(site / info / "RECORD", ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode())


def _paths(entry: Bom) -> list[tuple[str, list[str]]]:
    return [(package.replace(".", "/"), names) for package, names in entry["modules"].items()]


def _row(site: Path, name: str) -> str:
    content = (site / name).read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


class _Linker:
    """Makes shared libraries that hold nothing but their dynamic section."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.object = folder / "empty.o"
        if not self.object.exists():
            subprocess.run(["gcc", "-c", "-x", "c", "/dev/null", "-o", str(self.object)], check=True)

    def link(self, path: Path, soname: str | None, needed: list[str]) -> None:
        """A library at ``path`` with these names in it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        stubs = [self._stub(name) for name in needed if not name.startswith(("libc.so", "libstdc++"))]
        self._ld(path, soname, stubs)

    def _stub(self, name: str) -> Path:
        stub = self.folder / name
        if not stub.exists():
            self._ld(stub, name, [])
        return stub

    def _ld(self, path: Path, soname: str | None, needed: list[Path]) -> None:
        named = ["-soname", soname] if soname else []
        argv = ["ld", "-shared", "--no-as-needed", *named, "-o", str(path), str(self.object)]
        subprocess.run([*argv, *map(str, needed)], check=True)
