"""Facts of real wheels and of torch's own libraries, small enough to keep: ``python -m tests.abi.record WHEEL…``."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from fleetctl.abi.cuda import wanted
from fleetctl.abi.cxx import cxx11
from fleetctl.abi.elf import Library, read_library
from fleetctl.abi.wheel import wheel_libraries

FACTS = Path(__file__).parent / "facts"
SAMPLE = 12


def facts_of(library: Library, path: str, size: int) -> dict[str, Any]:
    """What is kept of a library: all but the symbols, of which there are counts and a sample.

    In the sample first are those that differ from one torch to the next.
    """
    telling = sorted(name for name in library.undefined if "c10" in name or name.startswith(("cu", "nv")))
    changing = [
        name for name in telling if "c10_cuda_check_implementation" in name or "MessageLoggerC" in name
    ]
    return {
        "path": path,
        "bytes": size,
        "soname": library.soname,
        "needed": list(library.needed),
        "rpath": list(library.rpath),
        "runpath": list(library.runpath),
        "machine": library.machine,
        "requires": dict(library.requires),
        "cxx11": cxx11(library),
        "cuda": sorted(wanted(library)),
        "gpu": sorted({str(code) for code in library.gpu}),
        "compressed": any(code.compressed for code in library.gpu),
        "undefined": len(library.undefined),
        "weak": len(library.weak),
        "exported": len(library.exported),
        "sample": changing + telling[:: max(len(telling) // SAMPLE, 1)][:SAMPLE],
    }


def wheel_facts(wheel: Path) -> dict[str, Any]:
    """The facts of a wheel's libraries, in the archive's order."""
    with zipfile.ZipFile(wheel) as archive:
        sizes = {member.filename: member.file_size for member in archive.infolist()}
    libraries = [facts_of(library, library.path, sizes[library.path]) for library in wheel_libraries(wheel)]
    return {"file": wheel.name, "bytes": wheel.stat().st_size, "libraries": libraries}


def torch_facts() -> dict[str, Any]:
    """The facts of the installed torch's libraries."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    version = next(folder.parent.glob("torch-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    paths = sorted((folder / "lib").glob("*.so*"))
    return {
        "torch": version,
        "libraries": [
            facts_of(read_library(path), f"torch/lib/{path.name}", path.stat().st_size) for path in paths
        ],
    }


def main() -> None:
    """Write one file a wheel, and torch's."""
    found = {Path(wheel).name.split("-")[0]: wheel_facts(Path(wheel)) for wheel in sys.argv[1:]}
    for name, facts in {**found, "torch": torch_facts()}.items():
        (FACTS / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
