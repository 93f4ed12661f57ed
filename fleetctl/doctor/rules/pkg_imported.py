"""PKG: names that an engine's sources import of a package, and that the package's files do not have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.doctor import known
from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.rule import Context, Found, rule
from fleetctl.doctor.stack import (
    EVIDENCE,
    asks,
    capabilities,
    engine,
    first,
    lacking,
    of_sglang,
    pinned,
    titled,
    view,
)
from fleetctl.doctor.toolkit import variable
from fleetctl.environment.view import View

Row = Mapping[str, Any]

# Packages and the distributions that bring them.
BRINGS = {
    "flashinfer": ("flashinfer-python",),
    "sgl_kernel": ("sglang-kernel", "sgl-kernel"),
    "xgrammar": ("xgrammar",),
}
# Names with a rule of their own.
MM_MXFP8 = "0.6.8.post1"
OWN_RULES = ("mm_mxfp8", "StructuralTag")
_OTHERS = re.compile(r"hip|npu|xpu|cpu|aiter|musa|else")
_CARDS = (
    (re.compile(r"blackwell|sm100|sm_?100"), (10, 11, 12)),
    (re.compile(r"sm120"), (12,)),
    (re.compile(r"sm90|hopper"), (9,)),
)


@rule(
    "pkg-mm-mxfp8",
    "error",
    reason="SGLang imports mm_mxfp8 of flashinfer on Blackwell cards, which older ones do not have.",
    source="sglang 0.5.11, layers/quantization/fp8_utils.py:226; both flashinfers' files; seen on the first hosts",
)
def mm_mxfp8(context: Context) -> Iterator[Found]:
    here = of_sglang(context)
    cards = capabilities(context)
    if here is None or (cards and all(card[0] < 10 for card in cards)):
        return
    if variable(context, "SGLANG_IS_FLASHINFER_AVAILABLE").lower() in ("0", "false"):
        return
    name = "flashinfer-python"
    read = _unmet(context)
    found = lacking(here, name)
    places = [str(row.get("where")) for row in read or () if row.get("name") == "mm_mxfp8"]
    if not places and (read is not None or found is None):
        return
    version, pin = found or (here.versions.get(name), pinned(here, name, MM_MXFP8))
    if here.versions.get(name) == pin.partition("==")[2]:
        pin = f"{name}=={MM_MXFP8}"
    what = (
        f"flashinfer {version} has no mm_mxfp8, which sglang {here.versions['sglang']} imports on Blackwell"
    )
    cubin = (pin.replace("-python", "-cubin"),) if "flashinfer-cubin" in here.versions else ()
    remedy = Remedy(f"{first([pin, *cubin])}: both of one version", packages=(pin, *cubin))
    evidence = [*(f"{place} imports it" for place in places), *asks(here, "sglang", name)]
    yield Found(what, name, evidence, remedy)


@rule(
    "pkg-imported-name",
    "error",
    reason="An engine's source that imports a name which the installed package's files do not have stops there, "
    "whatever the two versions say: copied or patched sources are of another version than their metadata.",
    source="the engine's import lines, the package's files; flashinfer 0.6.3 under sglang 0.5.11; the first hosts",
)
def imported_name(context: Context) -> Iterator[Found]:
    here = view(context)
    using = engine(context, here) if here else None
    if here is None or using is None:
        return
    rows = [row for row in _unmet(context) or () if row.get("consumer") == using]
    rows = [row for row in rows if row.get("name") not in OWN_RULES]
    for package in dict.fromkeys(str(row.get("provider")) for row in rows):
        mine = [(row, _severity(context, row)) for row in rows if row.get("provider") == package]
        for severity in ("error", "warning", "info"):
            told = [row for row, each in mine if each == severity]
            if told:
                yield _found(here, using, package, told, severity)


def _found(here: View, using: str, package: str, rows: list[Row], severity: Severity) -> Found:
    owner = next((name for name in BRINGS.get(package, ()) if name in here.versions), package)
    names = first(_named(row) for row in rows)
    when = {"error": "when it starts", "warning": "under a condition", "info": "when that is used"}[severity]
    what = f"{titled(here, owner)} has no {names}, which {titled(here, using)} imports {when}"
    pin = pinned(here, owner)
    is_there = pin.partition("==")[2] == here.versions.get(owner)
    text = (
        f"{owner} of the version that these sources were written for"
        + ("" if is_there or pin == owner else f": {pin}")
        + f"; or {using} again from its wheel, if its sources were copied or patched"
    )
    packages = () if is_there or pin == owner else (pin,)
    evidence = [
        f"{row.get('where')}: from {row.get('module')} import {row.get('name')}" for row in rows[:EVIDENCE]
    ]
    return Found(
        what, owner, [*evidence, *asks(here, using, owner)], Remedy(text, packages=packages), severity
    )


def _named(row: Row) -> str:
    return f"module {row.get('module')}" if row.get("name") == "*" else str(row.get("name"))


def _severity(context: Context, row: Row) -> Severity | None:
    """An error where it is imported at start on these cards; None where these cards do not ask for it."""
    if row.get("when") == "start":
        return "error"
    if row.get("when") == "call":
        return "info"
    under = str(row.get("under") or "").lower()
    if _OTHERS.search(under):
        return None
    cards = capabilities(context)
    for pattern, majors in _CARDS:
        if pattern.search(under):
            return "error" if any(card[0] in majors for card in cards) else None if cards else "warning"
    return "error" if cards and re.search(r"is_cuda\b", under) else "warning"


def _unmet(context: Context) -> list[Row] | None:
    """What the capture read; None where the facts are older than that."""
    bom = context.bom or {}
    return known.rows(bom, "unmet_imports") if isinstance(bom.get("unmet_imports"), list) else None
