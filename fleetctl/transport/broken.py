"""Why a copy from host to host failed, from what both of its ends said."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.agent.environment import bridge
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.bulk import LINK_CODES, transfer_failure
from fleetctl.transport.sender import WORD
from fleetctl.transport.settings import Settings, place

EVIDENCE = 10
SSH_FAILED = 255
UNREAD = 23
VANISHED = 24
AGAIN = "try again: it goes on where it stopped"
INSTALL = "install it there: `apt-get install {}`"


@dataclass(frozen=True)
class Ends:
    """Both ends of a copy."""

    source: Settings
    destination: Settings
    source_path: str
    destination_path: str


@dataclass(frozen=True)
class Outcome:
    """How both sessions ended, and their words; ``whole`` once rsync said that it was done."""

    destination_status: int
    source_status: int
    destination_words: list[str]
    source_words: list[str]
    received: int
    whole: bool

    @property
    def status(self) -> int:
        """The destination's, else the source's: rsync tells some of its failures on one side only."""
        return self.destination_status or self.source_status


def failure(ends: Ends, outcome: Outcome) -> FleetError:
    """The error of a copy that failed."""
    return (
        _of_source(ends, outcome)
        or _of_bridge(ends, outcome)
        or _of_links(ends, outcome)
        or _of_reading(ends, outcome)
        or transfer_failure(
            ends.destination,
            ends.destination_path,
            outcome.status,
            "\n".join(outcome.destination_words),
        )
    )


def _of_source(ends: Ends, outcome: Outcome) -> FleetError | None:
    where = f"{ends.source.name}:{ends.source_path}"
    if f"{WORD}no-folder" in outcome.source_words:
        fix = f"is it there? `ssh {ends.source.name} ls -ld {ends.source_path}`"
        return FleetError("no such folder on the host to copy from", where=where, fix=fix)
    if f"{WORD}no-rsync" in outcome.source_words:
        return FleetError(
            "the host has no rsync", where=where, fix=INSTALL.format("rsync"), exit=Exit.PREFLIGHT
        )
    return None


def _of_bridge(ends: Ends, outcome: Outcome) -> FleetError | None:
    where = f"{ends.destination.name}:{ends.destination_path}"
    said = [line.removeprefix(bridge.WORD) for line in outcome.destination_words if bridge.WORD in line]
    for program in ("rsync", "python"):
        if f"no-{program}" in said:
            fix = INSTALL.format("rsync" if program == "rsync" else "python3")
            return FleetError(f"the host has no {program}", where=where, fix=fix, exit=Exit.PREFLIGHT)
    if "locked" in said:
        return FleetError(
            "another copy into this folder goes on",
            where=where,
            fix=f"wait for it, or see who it is: `fuser -v {ends.destination_path}`",
            exit=Exit.LOCKED,
        )
    return None


def _of_links(ends: Ends, outcome: Outcome) -> FleetError | None:
    for settings, status, words in (
        (ends.source, outcome.source_status, outcome.source_words),
        (ends.destination, outcome.destination_status, outcome.destination_words),
    ):
        if status == SSH_FAILED:
            return FleetError(
                f"the link to {settings.name} failed",
                where=place(settings),
                fix=AGAIN,
                evidence=words[-EVIDENCE:],
                exit=Exit.UNREACHABLE,
            )
    everything = [*outcome.source_words, *outcome.destination_words][-EVIDENCE:]
    if any("is your shell clean" in line for line in outcome.destination_words):
        return FleetError(
            "the host's shell printed into the copy",
            where=place(ends.source),
            fix="its start-up files must not print without a terminal",
            evidence=everything,
            exit=Exit.UNREACHABLE,
        )
    if outcome.source_status and outcome.destination_status in LINK_CODES:
        return FleetError(
            f"rsync on {ends.source.name} ended with status {outcome.source_status}",
            where=f"{ends.source.name}:{ends.source_path}",
            fix=AGAIN,
            evidence=everything,
            exit=Exit.PREFLIGHT,
        )
    return None


def _of_reading(ends: Ends, outcome: Outcome) -> FleetError | None:
    said = [*outcome.source_words, *outcome.destination_words]
    unread = [line for line in said if "[sender]" in line or "send_files failed" in line]
    if outcome.status == VANISHED:
        what, fix = "files went away while they were copied", "run it again when nothing changes the folder"
    elif outcome.status == UNREAD and unread:
        what, fix = "files could not be read", "see rsync's words below: rights, or the disk"
    else:
        return None
    return FleetError(
        what,
        where=f"{ends.source.name}:{ends.source_path}",
        fix=fix,
        evidence=(unread or said)[-EVIDENCE:],
        exit=Exit.PREFLIGHT,
    )
