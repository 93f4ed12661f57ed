"""The patch set's own modules, loaded without sglang: those that import nothing of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "runtime_patches/ddtree-sglang-0.5.11/files/sglang/srt/speculative"


def module(name: str) -> ModuleType:
    """``ddtree_args`` and the like, from the patch set's folder."""
    known = f"patched_{name}"
    if known in sys.modules:
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[known] = made
    spec.loader.exec_module(made)
    return made
