"""The engine's arguments as a unit's ``ExecStart=`` gives them: for units that fleetctl does not write itself."""

from __future__ import annotations

import re
import shlex

from fleetctl.adoption.words import parse
from fleetctl.services.engines import Arguments


def unit_arguments(text: str, engine: str) -> Arguments:
    """The arguments behind the program of the last ``ExecStart=``; none where it cannot be read."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = re.findall(r"^ExecStart=[-@:+!]*(.*)$", joined, re.MULTILINE)
    try:
        words = shlex.split(lines[-1].replace("%%", "%").replace("$$", "$")) if lines else []
    except ValueError:
        words = []
    first = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
    return dict(parse(words[first:], engine).given)
