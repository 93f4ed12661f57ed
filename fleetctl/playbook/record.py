"""What a playbook's runs did, one JSON object a line, so that one that stopped goes on: ``--resume``."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetctl.errors import FleetError
from fleetctl.playbook.commands import Command

FOLDER = ".fleetctl/playbooks"


class Record:
    """The file of one playbook; each run of the same commands has their digest."""

    def __init__(self, root: Path, name: str, commands: Sequence[Command]) -> None:
        self.path = root / FOLDER / f"{name}.jsonl"
        said = json.dumps([[command.words, command.accept] for command in commands])
        self.digest = hashlib.sha256(said.encode()).hexdigest()[:12]
        self.run = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{self.digest}"

    def done(self) -> set[int]:
        """The steps, from 0, that the last run of the same commands ended, or took over as ended."""
        lines = [line for line in self._lines() if line.get("digest") == self.digest]
        last = lines[-1].get("run") if lines else None
        return {
            int(line["step"])
            for line in lines
            if line.get("run") == last and line.get("state") in ("done", "skipped")
        }

    def add(self, step: int, state: str, command: Command, **more: Any) -> None:
        """Write that a step began, was ``done``, ``failed`` or ``skipped``; :class:`FleetError` where it cannot."""
        line = {"run": self.run, "digest": self.digest, "time": round(time.time(), 3), "step": step}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**line, "state": state, "words": command.words, **more}) + "\n")
        except OSError as error:
            came = "was not begun" if state == "begin" else f"is {state}, and --resume would not know it"
            raise FleetError(
                f"the playbook's record cannot be written: {error.strerror}; step {step + 1} {came}",
                where=str(self.path),
                fix="make room or the folder writable, or name another fleet folder: --fleet",
            ) from None

    def _lines(self) -> list[dict[str, Any]]:
        """The lines that are whole; a crash may have torn the last one."""
        if not self.path.is_file():
            return []
        found = []
        for text in self.path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("step"), int):
                found.append(line)
        return found
