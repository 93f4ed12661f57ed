"""Bills of materials of an adopted host's environments, beside its inventory file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fleetctl.environment.bom import capture, save_bom
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import Agent

FOLDER = "captures"


def captures(
    agent: Agent,
    host: str,
    paths: Mapping[str, str],
    beside: Path,
    on_event: Callable[[dict[str, Any]], None],
) -> tuple[list[Path], list[str]]:
    """Capture the environments (name: path on the host) into ``captures/<host>-<name>.json`` beside a file.

    What is there already stays, and is not captured again. The paths written, and what could not be captured and
    why; FleetError with exit 3 where the link fails, with exit 130 on ^C.
    """
    written: list[Path] = []
    failed: list[str] = []
    for name, path in paths.items():
        file = _file(beside, host, name)
        if file.exists():
            continue
        try:
            bom = capture(agent, path, on_event)
            file.parent.mkdir(parents=True, exist_ok=True)
            save_bom(bom, file)
        except FleetError as error:
            if error.exit == Exit.UNREACHABLE:
                raise
            failed.append(f"{path} was not captured: {error.what}")
        except KeyboardInterrupt:
            raise _interrupted(beside, host, paths) from None
        except OSError as error:
            failed.append(f"{path} was not captured: {file.parent}: {error.strerror}")
        else:
            written.append(file)
    return written, failed


def _file(beside: Path, host: str, name: str) -> Path:
    return beside.parent / FOLDER / f"{host}-{name}.json"


def _interrupted(beside: Path, host: str, names: Iterable[str]) -> FleetError:
    missing = [name for name in names if not _file(beside, host, name).exists()]
    return FleetError(
        f"interrupted; {beside.name} is written, captures that are missing: {', '.join(missing) or 'none'}",
        where=str(beside),
        fix="run it again: what is written stays, and only what is missing is captured",
        exit=Exit.INTERRUPTED,
    )
