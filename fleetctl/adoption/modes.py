"""How a found server drafts, told from its arguments."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.adoption.words import text_of
from fleetctl.inventory.models import Mode
from fleetctl.services.engines import Arguments

DRAFTERS = ("speculative-draft-model-path", "drafter")
_OWN: dict[str, Mode] = {
    "autoregressive": "autoregressive",
    "linear": "linear",
    "shadow": "shadow",
    "tree": "tree",
}


@dataclass(frozen=True)
class Drafting:
    """The mode, the drafter's path or name, and what the inventory's words do not say of it."""

    mode: Mode
    drafter: str | None = None
    note: str = ""


def drafting(engine: str, given: Arguments) -> Drafting:
    """The mode of a found server."""
    drafter = next((text for name in DRAFTERS if (text := text_of(given, name))), None)
    if engine == "standalone":
        mode = _OWN.get(text_of(given, "mode") or "tree", "tree")
        return Drafting(mode, drafter) if drafter or mode == "autoregressive" else _without(f"mode {mode}")
    algorithm = text_of(given, "speculative-algorithm")
    if engine == "vllm" and ("speculative-config" in given or "speculative-model" in given):
        return _without("vLLM's speculative decoding")
    if engine != "sglang" or not algorithm:
        return Drafting("autoregressive")
    if not drafter:
        return _without(algorithm)
    return _sglang(algorithm.upper(), drafter, given)


def _sglang(algorithm: str, drafter: str, given: Arguments) -> Drafting:
    tree_flags = any(name.startswith("speculative-ddtree-") for name in given)
    if algorithm == "DDTREE" or (algorithm == "DFLASH" and tree_flags):
        said = text_of(given, "speculative-ddtree-mode")
        if said in ("shadow", "tree"):
            return Drafting(_OWN[said], drafter)
        return Drafting("tree", drafter, "no --speculative-ddtree-mode is given: taken for tree")
    if algorithm == "DFLASH":
        return Drafting("linear", drafter)
    several = (text_of(given, "speculative-eagle-topk") or "1") != "1"
    return Drafting(
        "tree" if several else "linear", drafter, f"drafts by {algorithm}, kept in args as it is given"
    )


def _without(what: str) -> Drafting:
    return Drafting("autoregressive", None, f"drafts by {what} with no drafter of its own: no mode says that")
