"""``fleetctl patch``: patch sets, and the environments they are in."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import patch_apply, patch_look, patch_new
from fleetctl.cli.interruptible import Interruptible

app = typer.Typer(
    name="patch",
    help="Patch sets of runtime_patches/: what they are, and environments derived with them.",
    no_args_is_help=True,
    cls=Interruptible,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@app.command("list")
def list_(json: Json = False) -> None:
    """List the patch sets; those with errors are named with file and line (exit 2).

    Hunks are tried on the wheels of their distribution that fleetctl keeps; others only on a host, by apply.
    """
    from fleetctl.cli.output import Output
    from fleetctl.errors import Exit
    from fleetctl.inventory.loader import find_root
    from fleetctl.patches.kept import wrong_on_wheels
    from fleetctl.patches.patchset import load_all, to_dict

    output = Output(json=json)
    root = find_root()
    good, errors = load_all(root)
    errors += wrong_on_wheels(root, good)
    if json:
        output.document(
            {
                "patch_sets": [to_dict(entry) for entry in good],
                "errors": [error.to_dict() for error in errors],
            }
        )
    else:
        rows = [
            [
                entry.name,
                entry.distribution,
                ", ".join(entry.manifest.versions),
                str(len(entry.manifest.files)),
                str(len(entry.manifest.hunks)),
                entry.manifest.upstream or "-",
                entry.manifest.why.splitlines()[0],
            ]
            for entry in good
        ]
        output.table(["patch set", "of", "versions", "new", "changed", "upstream", "why"], rows)
        for error in errors:
            output.print_error(error)
    if errors:
        raise typer.Exit(int(Exit.INPUT))


app.command("status")(patch_look.status)
app.command("apply")(patch_apply.apply)
app.command("verify")(patch_look.verify)
app.command("diff")(patch_look.diff)
app.command("new")(patch_new.new)
app.command("revert")(patch_apply.revert)
