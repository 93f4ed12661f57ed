"""Adopting from recorded answers, into a fleet folder that is read back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.adoption.compose import compose
from fleetctl.adoption.files import write
from fleetctl.adoption.survey import survey
from fleetctl.inventory.loader import Fleet, load_fleet
from tests.adoption.recorded import Json

Adopt = Callable[[Json], tuple[Fleet, str]]
TEMPLATES = Path(__file__).parents[2] / "templates/systemd"


@pytest.fixture
def adopt(tmp_path: Path) -> Adopt:
    """What is seen on the host ``box`` as a fleet, and its inventory's text."""
    return lambda seen: adopt_into(tmp_path, seen)


def adopt_into(root: Path, seen: Json) -> tuple[Fleet, str]:
    """Write and load the host's files in a fleet folder."""
    (root / "templates/systemd").mkdir(parents=True, exist_ok=True)
    for path in TEMPLATES.glob("*.j2"):
        (root / "templates/systemd" / path.name).write_text(path.read_text())
    file = root / "inventories/box.yaml"
    file.unlink(missing_ok=True)
    files = compose(survey("box", {}, seen), root, seen["units"])
    write(files, file, root)
    return load_fleet(root, "inventories"), files.inventory
