"""Run a playbook's commands one after the other, each a ``fleetctl`` of its own; the first that fails ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from fleetctl.errors import Exit
from fleetctl.playbook.commands import Command
from fleetctl.playbook.record import Record

OnEvent = Callable[[dict[str, Any]], None]
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Ended:
    """How one step ended: ``done``, ``skipped`` (an earlier run did it), ``planned``, ``looks only`` or ``failed``."""

    command: Command
    verdict: str
    exit: int | None = None
    seconds: float = 0.0


def run_playbook(
    commands: Sequence[Command], record: Record, skip: Collection[int], json_events: bool, on_event: OnEvent
) -> list[Ended]:
    """Carry out ``commands``, but those at ``skip``, which an earlier run ended.

    Each command's output goes to this process's own, or with ``json_events`` into its event. Its exit code is an
    end where the step accepts it; ^C and other signals go to the command, which ends as it does by itself.
    """
    ended: list[Ended] = []
    for at, command in enumerate(commands):
        where = {"step": at + 1, "of": len(commands), "name": command.step, "command": command.shown}
        if at in skip:
            record.add(at, "skipped", command)
            ended.append(Ended(command, "skipped"))
            on_event({**where, "state": "skipped"})
            continue
        on_event({**where, "state": "begin"})
        record.add(at, "begin", command)
        began = time.monotonic()
        code, output = _run(command.words, json_events and command.has_json)
        seconds = round(time.monotonic() - began, 2)
        verdict = "done" if code in command.accept else "failed"
        record.add(at, verdict, command, exit=code, seconds=seconds)
        ended.append(Ended(command, verdict, code, seconds))
        said = {"output": output} if json_events and command.has_json else {}
        on_event({**where, "state": verdict, "exit": code, "seconds": seconds, **said})
        if verdict == "failed":
            break
    return ended


def plan_playbook(commands: Sequence[Command], json_events: bool, on_event: OnEvent) -> list[Ended]:
    """Each command with ``--plan`` where its verb has it; the others only look, and are named.

    A step whose plan fails may only wait for what an earlier one will do, so the rest is planned too.
    """
    ended: list[Ended] = []
    for at, command in enumerate(commands):
        where = {"step": at + 1, "of": len(commands), "name": command.step, "command": command.shown}
        if not command.has_plan:
            ended.append(Ended(command, "looks only"))
            on_event({**where, "state": "looks only"})
            continue
        on_event({**where, "state": "begin"})
        words = [*command.verb, "--plan", *command.words[len(command.verb) :]]
        code, output = _run(words, json_events and command.has_json)
        verdict = "planned" if code in (Exit.OK, Exit.PLAN_CHANGES, *command.accept) else "failed"
        ended.append(Ended(command, verdict, code))
        on_event({**where, "state": verdict, "exit": code, **({"output": output} if json_events else {})})
    return ended


def exit_code(ended: Sequence[Ended], planned: bool) -> int:
    """The exit code of the step that failed, else 0, or 10 where a plan found changes.

    A plan that failed is a change to come, unless the operator's input is wrong or a host was not reached.
    """
    failed = [one.exit for one in ended if one.verdict == "failed" and one.exit is not None]
    if not planned:
        return failed[0] if failed else Exit.OK
    hopeless = [code for code in failed if code in (Exit.BUG, Exit.INPUT, Exit.UNREACHABLE)]
    if hopeless:
        return hopeless[0]
    changes = failed or any(one.exit == Exit.PLAN_CHANGES for one in ended)
    return Exit.PLAN_CHANGES if changes else Exit.OK


def _run(words: Sequence[str], as_json: bool) -> tuple[int, Any]:
    """The command's exit code and, with ``as_json``, what it printed: a document, or a list of events."""
    argv = [sys.executable, "-m", "fleetctl", *words, *(["--json"] if as_json else [])]
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if as_json else None,
        env=dict(os.environ),
        process_group=0,
        text=True,
    )
    with _forwarding(child):
        out, _ = child.communicate()
    code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    return code, _parsed(out) if as_json else None


@contextmanager
def _forwarding(child: subprocess.Popen[str]) -> Iterator[None]:
    """Signals reach the child once: it has a process group of its own, so the terminal's ^C comes only here."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            child.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    found = []
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found
