"""Bills of materials as data: the reference host's environment, and the training one that it was copied onto.

``reference.json`` and ``training.json`` have the names, versions and requirements of the released wheels.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

Bom = dict[str, Any]


@cache
def _text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.json").read_text()


def reference() -> Bom:
    """The reference host's: torch 2.11.0+cu130, sglang 0.5.11."""
    return copy.deepcopy(json.loads(_text("reference")))


def training() -> Bom:
    """The training host's, half patched: torch 2.11.0+cu128, sglang 0.5.9 with a nested copy, a copied kernel."""
    return copy.deepcopy(json.loads(_text("training")))


def distribution(bom: Bom, name: str) -> Bom:
    """The distribution's entry."""
    found: Bom = next(entry for entry in bom["distributions"] if entry["name"] == name)
    return found


def extensions(bom: Bom, name: str) -> list[Bom]:
    """The distribution's libraries."""
    return [entry for entry in bom["extensions"] if entry["distribution"] == name]


def without(bom: Bom, *names: str) -> Bom:
    """The same without some distributions and their libraries."""
    bom["distributions"] = [entry for entry in bom["distributions"] if entry["name"] not in names]
    bom["extensions"] = [entry for entry in bom["extensions"] if entry["distribution"] not in names]
    return bom
