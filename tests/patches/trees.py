"""Small real wheels, environments that have them installed, and patch sets made on the spot."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from wheel.wheelfile import WheelFile

from fleetctl.patches.create import create
from fleetctl.patches.patchset import FOLDER, MANIFEST, PatchSet, load
from fleetctl.patches.plan import PatchWrites, plan
from fleetctl.patches.trees import Read, Wheel

SITE = "lib/python3.11/site-packages"
ENGINE = {
    "engine/__init__.py": b"from engine.info import NAMES\n",
    "engine/info.py": b'NAMES = ["linear"]\n\n\ndef is_linear(name):\n    return name in NAMES\n',
    "engine/crlf.py": b"A = 1\r\nB = 2\r\n",
    "engine/last.py": b"A = 1\nB = 2",
    "engine/empty.py": b"",
}


def wheel(
    folder: Path, files: Mapping[str, bytes] = ENGINE, version: str = "1.0", name: str = "engine"
) -> Path:
    """A wheel of those files."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with WheelFile(path, "w") as archive:
        for inside, content in files.items():
            archive.writestr(inside, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    return path


def installed(environment: Path, *wheels: Path) -> Path:
    """The site-packages folder of an environment with those wheels unpacked in it."""
    packages = environment / SITE
    packages.mkdir(parents=True, exist_ok=True)
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(packages)
    return packages


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Those files in a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def edit(root: Path, name: str, **keys: Any) -> PatchSet:
    """Fill in a new patch set's whys, and other keys of its manifest; the patch set."""
    path = root / FOLDER / name / MANIFEST
    data = yaml.safe_load(path.read_text())
    data["why"] = "to try it"
    for hunk in data["hunks"]:
        hunk["why"] = "to try it"
    data.update(keys)
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return load(root, name)


def patch_set(
    root: Path,
    name: str,
    changed: Mapping[str, bytes],
    base: Mapping[str, bytes] = ENGINE,
    version: str = "1.0",
    **keys: Any,
) -> PatchSet:
    """The patch set that makes ``base`` with ``changed`` on top."""
    before = Wheel(wheel(root / f"wheels-{name}", base, version))
    after = write(root / f"changed-{name}", {**base, **changed})
    create(root, name, "engine", before, Read(str(after), str(after)))
    return edit(root, name, **keys)


def planned(environment: Path, *sets: PatchSet) -> list[PatchWrites]:
    """What applying the sets would write into the environment."""
    tree = Read("here", str(environment))
    return plan(
        sets,
        tree.distributions(entry.distribution for entry in sets),
        tree.contents([change.path for entry in sets for change in entry.changes]),
        sets,
        "here",
    )


def carry_out(packages: Path, entries: list[PatchWrites]) -> None:
    """Write what was planned, as the agent does."""
    for entry in entries:
        for item in entry.writes:
            path = packages / item.path
            if item.content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(item.content)


def code(packages: Path) -> dict[str, bytes]:
    """The files of the environment's packages."""
    return {
        str(path.relative_to(packages)): path.read_bytes()
        for path in sorted(packages.rglob("*"))
        if path.is_file() and ".dist-info" not in str(path) and "__pycache__" not in str(path)
    }
