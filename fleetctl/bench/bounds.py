"""The most that may be asked for. Without pydantic, so that command lines have them at once."""

from __future__ import annotations

ROUNDS = 1000
WARMUP = 1000
CONCURRENCY = 4096
TOKENS = 1_000_000
"""Of an answer, and of a context: what large models take."""
REQUESTS = 1_000_000
"""Of a whole plan."""
