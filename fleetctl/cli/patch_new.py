"""``fleetctl patch new``: a patch set from a tree that somebody changed."""

from __future__ import annotations

from typing import Annotated

import typer


def new(
    name: Annotated[str, typer.Argument(help="The patch set's name: a folder of runtime_patches/.")],
    distribution: Annotated[str, typer.Option("--distribution", help="What was changed, such as sglang.")],
    base: Annotated[str, typer.Option("--base", help="As it was: a wheel's file, a folder, or a PLACE.")],
    changed: Annotated[str, typer.Option("--changed", help="As it is now: a PLACE, or a folder.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Make a patch set from a changed tree; its whys are yours to write, and it is refused until they are."""
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.patches.create import create
    from fleetctl.patches.patchset import MANIFEST
    from fleetctl.patches.places import open_tree

    output = Output(json=json)
    fleet = load_fleet()
    with open_tree(fleet, base) as before, open_tree(fleet, changed) as after:
        folder = create(fleet.root, name, distribution, before, after)
    if json:
        output.document({"manifest": str(folder / MANIFEST)})
    else:
        output.line(f"wrote {folder / MANIFEST}; write each why: and what must hold in checks:")
