"""Environments: specification, wheelhouse, build on the host."""
