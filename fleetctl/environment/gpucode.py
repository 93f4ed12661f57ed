"""Whether a card runs a piece of GPU code: NVIDIA's rules of compute capabilities, exactly. Pure.

Machine code (SASS) runs on its own major from its minor on; with ``f`` that is the whole family, with ``a`` the one
capability alone. PTX is compiled by the driver for any later card; with ``f`` for its family, with ``a`` for no other.
Source: CUDA Programming Guide, Compute Capabilities; NVIDIA's notes on family-specific features (CUDA 12.9).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

Capability = tuple[int, int]

_CODE = re.compile(r"(sass|ptx):(?:sm_|compute_)?(\d{2,3})([af]?)")


class GpuCode(NamedTuple):
    """``kind`` is ``sass`` or ``ptx``; ``suffix`` is ``a``, ``f`` or empty."""

    kind: str
    capability: Capability
    suffix: str

    def runs_on(self, card: Capability) -> bool:
        """Whether a card of this capability runs it."""
        if self.capability == card or self.suffix == "a":
            return self.capability == card
        if self.capability > card:
            return False
        return self.capability[0] == card[0] or (self.kind == "ptx" and not self.suffix)


def parse(text: str) -> GpuCode | None:
    """``sass:90a`` or ``ptx:120``; None for what is neither."""
    found = _CODE.fullmatch(text)
    return GpuCode(found[1], capability(found[2]), found[3]) if found else None


def capability(number: str) -> Capability:
    """``(12, 0)`` of ``120``."""
    return int(number[:-1]), int(number[-1])


def runs_by(code: Iterable[str], card: Capability) -> set[str]:
    """How a card runs one of the pieces of code: ``{"sass"}``, ``{"ptx"}``, both, or not at all."""
    known = filter(None, map(parse, code))
    return {one.kind for one in known if one.runs_on(card)}


def named(card: Capability) -> str:
    """``SM 12.0``"""
    return f"SM {card[0]}.{card[1]}"
