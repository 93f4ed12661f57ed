"""fleetctl's own server as a wheel, so that an environment holds it too; same sources, same bytes."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from wheel.wheelfile import WheelFile

import fleetctl

PARTS = {"standalone": ("__init__.py", "errors.py", "standalone", "ddtree")}
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_local_wheel(part: str, folder: Path) -> Path:
    """Pack ``part`` into ``folder`` and return the wheel's path.

    The version ends in a digest of the sources, ``0.1.0+g1a2b3c4d5e6f``, so that each content has its own
    file name. Nothing is compressed: zlib's output differs from build to build of zlib.
    """
    sources = _sources(Path(fleetctl.__file__).parent, PARTS[part])
    version = _version(sources)
    path = folder / f"fleetctl_{part}-{version}-py3-none-any.whl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pack-", dir=folder) as drafts:
            draft = Path(drafts) / path.name
            _pack(draft, part, version, sources)
            draft.replace(path)
    return path


def local_pin(part: str) -> str:
    """The requirement that the wheel of ``part`` meets, as it would be packed now."""
    return f"fleetctl-{part}=={_version(_sources(Path(fleetctl.__file__).parent, PARTS[part]))}"


def _version(sources: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sources.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{fleetctl.__version__}+g{digest.hexdigest()[:12]}"


class _Wheel(WheelFile):  # type: ignore[misc]
    """A wheel whose entries carry no time and no umask, its RECORD included."""

    def writestr(
        self, zinfo_or_arcname: zipfile.ZipInfo | str, data: Any, compress_type: int | None = None
    ) -> None:
        if isinstance(zinfo_or_arcname, str):
            zinfo_or_arcname = zipfile.ZipInfo(zinfo_or_arcname, _EPOCH)
            zinfo_or_arcname.external_attr = 0o100644 << 16
        super().writestr(zinfo_or_arcname, data, compress_type)


def _pack(path: Path, part: str, version: str, sources: dict[str, bytes]) -> None:
    info = f"fleetctl_{part}-{version}.dist-info"
    with _Wheel(path, "w", compression=zipfile.ZIP_STORED) as wheel:
        for name, content in sources.items():
            wheel.writestr(name, content)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: fleetctl-{part}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: fleetctl\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )


def _sources(package: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Path inside the wheel → content, sorted; byte code left out."""
    found = {}
    for name in names:
        top = package / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found[path.relative_to(package.parent).as_posix()] = path.read_bytes()
    return dict(sorted(found.items()))
