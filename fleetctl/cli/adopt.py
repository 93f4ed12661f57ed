"""``fleetctl adopt``: what somebody set up by hand on a host, as its inventory file."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fleetctl.adoption.compose import Files
    from fleetctl.adoption.draft import Draft
    from fleetctl.cli.output import Output

COLUMNS = ["found", "engine", "mode", "port", "gpus", "environment", "model", "service"]
FIND_S = 60.0


def adopt(
    host: Annotated[
        str, typer.Argument(help="What `ssh HOST` reaches; becomes the host's name in fleetctl.")
    ],
    ssh: Annotated[
        str | None, typer.Option("--ssh", metavar="USER@ADDRESS[:PORT]", help="Reach it there instead.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", metavar="FILE", help="Write there, not into the inventory's folder.")
    ] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the file; write nothing.")] = False,
    capture: Annotated[
        bool, typer.Option("--capture/--no-capture", help="Keep each environment's bill of materials too.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Write the inventory file of a host that was set up by hand, from what serves there; changes nothing on it.

    A file that is there is never overwritten: exit 2 with the difference.
    """
    import os

    from fleetctl.adoption.captures import captures
    from fleetctl.adoption.compose import compose
    from fleetctl.adoption.files import check_name, destination, write
    from fleetctl.adoption.survey import survey
    from fleetctl.cli.outfile import require_place
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import INVENTORIES, find_root
    from fleetctl.transport.agent import open_agent

    root = find_root(None)
    folder = root / (os.environ.get("FLEETCTL_INVENTORY") or INVENTORIES)
    file = out.absolute() if out else folder / f"{host}.yaml"
    target, settings = destination(host, ssh, file if file.is_file() else folder / f"{host}.yaml")
    if not out and not stdout:
        check_name(folder, host, file)
    output = Output(json=json)
    if out and not stdout and file.parent != folder.absolute():
        require_place(file)
    with open_agent(target) as agent:
        try:
            seen: dict[str, Any] = agent.call("servers.find", timeout=FIND_S)
        except KeyboardInterrupt:
            raise FleetError(
                f"interrupted while {host} was looked at; nothing was written", exit=Exit.INTERRUPTED
            ) from None
        draft = survey(host, settings, seen)
        files = compose(draft, root, seen["units"])
        written = [] if stdout else write(files, file, root)
        if capture and not stdout:
            with progress(output) if not json else nullcontext(_unheard) as listener:
                made, failed = captures(agent, host, draft.pythons, file, listener)
            written += made
            draft.left += failed
    if json:
        output.document(_document(draft, files, file, [str(path) for path in written]))
    elif stdout:
        print(files.inventory, end="")
        for name in files.templates:
            output.progress.print(f"goes with templates/systemd/{name}, which is not written", soft_wrap=True)
    else:
        _print(output, draft, file, [_shown(path, root) for path in written])


def _print(output: Output, draft: Draft, file: Path, written: list[str]) -> None:
    if draft.rows:
        output.table(COLUMNS, [row.cells() for row in draft.rows])
    else:
        output.line(f"{draft.host}: nothing that serves models was found")
    for line in draft.left:
        output.line(f"note: {line}")
    if written:
        output.line(f"wrote {', '.join(written)}")
    else:
        output.line(f"{file} says just that already, nothing to do")


def _unheard(event: dict[str, Any]) -> None:
    """``--json`` is one document: what goes on meanwhile is not said."""


def _document(draft: Draft, files: Files, file: Path, written: list[str]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "host": draft.host,
        "file": str(file),
        "written": written,
        "found": [asdict(row) for row in draft.rows],
        "notes": draft.left,
        "inventory": files.inventory,
        "templates": files.templates,
    }


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
