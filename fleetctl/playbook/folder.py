"""All playbooks of a fleet folder: those that are whole, and what is wrong with the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetctl.errors import FleetError
from fleetctl.playbook.commands import wrong_words
from fleetctl.playbook.document import Source, load_playbook, playbooks


def load_all(root: Path, app: Any) -> tuple[list[Source], list[FleetError]]:
    """Every playbook whose keys and steps are right, and one error (exit 2) for each other file."""
    good: list[Source] = []
    errors: list[FleetError] = []
    for name in playbooks(root):
        try:
            source = load_playbook(root, name, lambda data: wrong_words(data, app))
        except FleetError as error:
            errors.append(error)
            continue
        if wrong := wrong_words(source.playbook.model_dump(), app):
            errors.append(source.error(wrong))
        else:
            good.append(source)
    return good, errors
