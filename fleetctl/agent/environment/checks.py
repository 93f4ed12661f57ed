"""Prove that a derived environment works: its interpreter runs in its new place, modules load, checks pass."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from fleetctl.agent.environment.child import Children
from fleetctl.agent.errors import PREFLIGHT, AgentError

PROOF = """
import importlib, sys
print("prefix", sys.prefix, flush=True)
for name in sys.argv[1:]:
    print("import", name, flush=True)
    importlib.import_module(name)
"""
PYTHONS = ("python", "python3")
KEEP_LINES = 40
IMPORTS_S = 600.0
CHECK_S = 60.0


class Checks:
    """Runs them with the environment's own interpreter; ``results`` are the patches' checks with what they said."""

    def __init__(self, children: Children, home: str) -> None:
        self.results: List[Dict[str, Any]] = []
        self._children = children
        self._home = home
        self._python = f"{home}/bin/python"

    def run(self, modules: List[str], patches: List[Dict[str, Any]]) -> None:
        """Raises :class:`AgentError` (exit 5) with the last lines of the first that fails."""
        wanted = list(
            dict.fromkeys([*modules, *(name for patch in patches for name in patch.get("imports", []))])
        )
        self._prove(wanted)
        for patch in patches:
            for check in patch.get("checks", []):
                said = check if isinstance(check, dict) else {"argv": check}
                what = said.get("what") or " ".join(" ".join(said["argv"]).split())[:200]
                self._check(patch["name"], what, said["argv"], float(said.get("seconds") or CHECK_S))

    def _prove(self, modules: List[str]) -> None:
        status, lines = self._run(
            [self._python, "-I", "-B", "-c", PROOF, *modules], "load the modules", IMPORTS_S
        )
        said = [line.partition(" ")[2] for line in lines if line.startswith("prefix ")]
        if not said:
            raise self._failed("its interpreter does not run", status, lines)
        if os.path.realpath(said[0]) != os.path.realpath(self._home):
            raise self._failed(f"its interpreter takes {said[0]} for its place", status, lines)
        if status:
            last = [line.partition(" ")[2] for line in lines if line.startswith("import ")]
            raise self._failed(f"the module {last[-1] if last else '?'} does not load", status, lines)

    def _check(self, patch: str, what: str, argv: List[str], seconds: float) -> None:
        command = [self._python, *(argv[1:] if argv[0] in PYTHONS else argv)]
        status, lines = self._run(command, f"check of {patch}", seconds)
        self.results.append({"patch": patch, "argv": argv, "status": status, "output": lines[-KEEP_LINES:]})
        if status:
            raise self._failed(f"a check of the patch {patch} failed: {what}", status, lines)

    def _run(self, argv: List[str], text: str, seconds: float) -> "tuple[int, List[str]]":
        return self._children.run("derive-check", argv, lambda: text, seconds)

    def _failed(self, what: str, status: int, lines: List[str]) -> AgentError:
        return AgentError(
            f"{what} (exit status {status})",
            where=self._home,
            fix="see the lines below; nothing was left behind, and the base is as it was",
            evidence=lines[-20:],
            exit=PREFLIGHT,
        )
