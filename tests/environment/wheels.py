"""Tiny real wheels, made on the spot."""

from __future__ import annotations

from pathlib import Path

from wheel.wheelfile import WheelFile


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    requires: tuple[str, ...] = (),
    code: str = "",
    tag: str = "py3-none-any",
    blob: int = 0,
) -> Path:
    """A wheel with one module ``name`` that holds ``code``; ``blob`` adds a file of that many zero bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    with WheelFile(path, "w") as wheel:
        wheel.writestr(
            f"{name}/__init__.py", code or f"VALUE = {version!r}\ndef main() -> int:\n    return 0\n"
        )
        if blob:
            wheel.writestr(f"{name}/blob.bin", b"\0" * blob)
        wheel.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name}-cmd = {name}:main\n")
    return path
