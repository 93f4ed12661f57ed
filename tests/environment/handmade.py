"""Small real venvs with distributions in them, written as pip would."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path

PYTHON = f"python3.{sys.version_info[1]}"


def make_venv(path: Path) -> Path:
    """A venv without pip."""
    argv = [sys.executable, "-m", "venv", "--without-pip", str(path)]
    subprocess.run(argv, check=True)
    return path


def packages(venv: Path) -> Path:
    """Its site-packages."""
    return venv / "lib" / PYTHON / "site-packages"


def install(
    venv: Path,
    name: str,
    version: str = "1.0",
    files: dict[str, str | bytes] | None = None,
    part: bool = False,
) -> None:
    """A distribution with a package ``name`` (``VALUE`` is its version) and a script ``bin/<name>-cmd``.

    ``files`` are more of them, relative to site-packages. ``part``: ``venv`` is a part folder.
    """
    site = venv if part else packages(venv)
    info = f"{name}-{version}.dist-info"
    script = f"#!{venv}/bin/python\nimport {name}\nprint({name}.VALUE)\n"
    content: dict[str, str | bytes] = {
        f"{name}/__init__.py": f"VALUE = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        **(files or {}),
    }
    lines = []
    for path, text in content.items():
        lines.append(_write(site / path, path, text))
    place = venv / "bin" / f"{name}-cmd"
    lines.append(_write(place, f"../../../bin/{name}-cmd", script))
    place.chmod(0o755)
    (site / info / "RECORD").write_text("\n".join([*lines, f"{info}/RECORD,,"]) + "\n")


def wrong_records(venv: Path) -> list[str]:
    """Files whose bytes are not what their RECORD says, or that are missing."""
    wrong = []
    for record in packages(venv).glob("*.dist-info/RECORD"):
        for line in record.read_text().splitlines():
            path, digest, _ = line.rsplit(",", 2)
            file = packages(venv) / path
            if digest and (not file.exists() or _hash(file.read_bytes()) != digest):
                wrong.append(path)
    return wrong


def snapshot(folder: Path) -> dict[str, object]:
    """Everything about each entry that a write would change, and the bytes."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        inside = str(path.relative_to(folder))
        if path.is_symlink():
            found[inside] = os.readlink(path)  # noqa: PTH115
        elif path.is_file():
            found[inside] = (stat.st_mode, stat.st_mtime_ns, stat.st_ino, path.read_bytes())
        else:
            found[inside] = stat.st_mode
    return found


def naming(folder: Path, text: str) -> list[str]:
    """Files under the folder that contain the text, but for the marker."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".fleetctl-env.json" and text.encode() in path.read_bytes()
    ]


def _write(place: Path, name: str, content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return f"{name},{_hash(data)},{len(data)}"


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
