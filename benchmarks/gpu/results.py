"""Results on disk: one JSON file a phase, written after every arm, so that a run goes on where it stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.server import card


class Results:
    """``<out>/<phase>.json``: what was measured on, and one entry an arm."""

    def __init__(self, out: Path, phase: str) -> None:
        self._path = out / f"{phase}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.data: dict[str, Any] = {**card(), "arms": {}, **kept}

    def has(self, arm: str) -> bool:
        """Whether the arm was measured already, to its end."""
        kept = self.data["arms"].get(arm)
        return kept is not None and not (isinstance(kept, dict) and kept.get("unfinished"))

    def put(self, arm: str, measured: Any) -> None:
        """Keep an arm's figures."""
        self.data["arms"][arm] = measured
        self.save()

    def save(self) -> None:
        """Write the file whole."""
        self.data["written"] = time.strftime("%FT%TZ", time.gmtime())
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(self.data, indent=1))
        draft.rename(self._path)
