"""Draft trees from a block drafter's marginals: construction, verification mask, acceptance."""

from fleetctl.ddtree.tree import (
    Accepted,
    DraftTree,
    build_tree,
    chain,
    kept_slots,
    top_log_probs,
    walk,
)

__all__ = ["Accepted", "DraftTree", "build_tree", "chain", "kept_slots", "top_log_probs", "walk"]
