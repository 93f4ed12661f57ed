"""What one line of a log says, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetctl.doctor.finding import Remedy
from fleetctl.doctor.signatures.words import words
from fleetctl.inventory.models import Argument

Verdict = Literal["fatal", "likely", "warning", "last", "harmless"]


@dataclass(frozen=True)
class Signature:
    """A pattern that, found in a line of the log, says ``reason``.

    ``verdict``: ``fatal`` ends a swap's wait at once; ``likely`` names the cause once it has failed (a healthy
    start may say so too, in passing); ``warning`` is no failure; ``last`` is a fault where nothing follows;
    ``harmless`` lines are passed over. ``consequence``: the line only reports that something else failed; the
    cause is looked for around it. ``also``: a further pattern, likely where ``pattern`` is fatal. ``times``: how
    often one log must say so. ``source``: where it was seen.
    """

    id: str
    pattern: str
    reason: str
    fix: str
    verdict: Verdict = "likely"
    consequence: bool = False
    times: int = 1
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    source: str = ""
    also: str = ""

    @property
    def family(self) -> str:
        """ABI, ARCH, CFG, DRV, GPU, MODEL, NET, PKG, SVC or SYS."""
        return self.id.split("-", 1)[0].upper()

    @property
    def remedy(self) -> Remedy:
        """How to go on."""
        return Remedy(self.fix, self.arguments, self.variables, self.packages, self.commands)

    def to_dict(self) -> dict[str, Any]:
        """As plans carry it to the host."""
        plain: dict[str, Any] = {
            "id": self.id,
            "pattern": self.pattern,
            "verdict": self.verdict,
            "reason": self.reason,
            "fix": self.fix,
            "words": list(words(self.pattern)),
        }
        return {**plain, "consequence": True} if self.consequence else plain

    def rows(self) -> Iterator[dict[str, Any]]:
        """As :meth:`to_dict`, one a pattern."""
        yield self.to_dict()
        if self.also:
            yield {
                **self.to_dict(),
                "pattern": self.also,
                "verdict": "likely",
                "words": list(words(self.also)),
            }
