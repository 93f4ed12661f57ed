"""Commands that ^C ends with a message: what they were making on a host is taken away there."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class Interruptible(TyperGroup):
    """A group of commands whose ^C is an error of exit 130 that says what became of the work."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from fleetctl.errors import Exit, FleetError

            raise FleetError(
                "interrupted; nothing unfinished was named",
                fix="run it again; what was being made on a host is removed there, a transfer goes on where it stopped",
                exit=Exit.INTERRUPTED,
            ) from None
