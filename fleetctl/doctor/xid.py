"""The Xid codes that matter to a model server: what each means and what to do. Data."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.doctor.finding import Severity


@dataclass(frozen=True)
class Xid:
    """One code of the NVIDIA driver. ``severity``: error where the card must be reset or replaced first."""

    what: str
    fix: str
    severity: Severity = "warning"
    commands: tuple[str, ...] = ()


RESET = "stop what runs on the card, then reset it or reboot; replace the card where it comes back"
PROGRAM = (
    "restart the service; one program's bug where only it has it, the card's fault where others have it too"
)
RESET_COMMANDS = ("nvidia-smi --gpu-reset -i INDEX", "reboot")

XIDS: dict[int, Xid] = {
    13: Xid("a kernel did what the card does not allow", PROGRAM),
    31: Xid("a kernel used an address that is not mapped", PROGRAM),
    32: Xid("a broken command stream reached the card", PROGRAM),
    43: Xid("the card stopped a program's work", PROGRAM),
    46: Xid("the card stopped working on its queue", RESET, "error", RESET_COMMANDS),
    48: Xid("a memory error that ECC could not correct", RESET, "error", RESET_COMMANDS),
    61: Xid("a controller inside the card halted", RESET, "error", RESET_COMMANDS),
    62: Xid("a controller inside the card halted", RESET, "error", RESET_COMMANDS),
    63: Xid(
        "a bad memory row is to be remapped",
        "reset the card when it is idle: that does it",
        "warning",
        RESET_COMMANDS,
    ),
    64: Xid(
        "a bad memory row could not be remapped",
        "reset the card; replace it where it comes back",
        "error",
        RESET_COMMANDS,
    ),
    69: Xid("a kernel used the card in a way that it does not know", PROGRAM),
    74: Xid(
        "an NVLink connection failed",
        "reset the cards at both ends; then check bridge or switch",
        "error",
        RESET_COMMANDS,
    ),
    79: Xid(
        "it fell off the bus",
        "reboot (a cold start is better); then check power, cables, riser and heat; move the slot meanwhile",
        "error",
        ("reboot",),
    ),
    92: Xid("many memory errors that ECC corrected", "plan to replace the card"),
    94: Xid(
        "a memory error that hit one program only", "restart the service; reset the card when it is idle"
    ),
    95: Xid("a memory error that no program contains", RESET, "error", RESET_COMMANDS),
    109: Xid(
        "a switch between programs took too long", "restart the service; reset the card where it comes back"
    ),
    110: Xid("a fault that the card reports as its own", RESET, "error", RESET_COMMANDS),
    119: Xid(
        "the card's GSP firmware does not answer",
        "reboot; a newer driver where it comes back",
        "error",
        ("reboot",),
    ),
    120: Xid(
        "the card's GSP firmware failed", "reboot; a newer driver where it comes back", "error", ("reboot",)
    ),
    136: Xid(
        "an NVLink did not come up",
        "reset the cards at both ends; then check bridge or switch",
        "error",
        RESET_COMMANDS,
    ),
    140: Xid("a memory error that ECC did not recover", RESET, "error", RESET_COMMANDS),
    143: Xid("the card did not start", "reboot; replace the card where it comes back", "error", ("reboot",)),
    154: Xid(
        "the driver asks for a recovery, which its line names",
        "do what the line says (reset or reboot)",
        "error",
    ),
}
