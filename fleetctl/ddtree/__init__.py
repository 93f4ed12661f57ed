"""Draft trees from a block drafter's marginals: construction, verification mask, acceptance."""
