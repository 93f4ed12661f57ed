"""What a playbook's file says, as types: ``playbooks/*.yaml``, errors with file and line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from fleetctl.errors import FleetError
from fleetctl.inventory.document import Document, Key, Problem, read
from fleetctl.inventory.models import Model, Name, Number, Text, Value
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.problems import in_words, together

FOLDER = "playbooks"
STEP_KEYS = ("name", "accept", "foreach")

Kind = Literal["host", "service", "environment", "suite", "text", "integer", "number"]
Given = Value | bool | int | Number
Look = Callable[[dict[str, Any]], list[Problem]]
"""What is wrong with a file's data besides its keys and their types."""
Words = Annotated[list[Value | int | Number], Field(min_length=1)]


class Parameter(Model):
    """One value that the operator gives as ``NAME=VALUE``; required where it has no default."""

    type: Kind = "text"
    default: Given | None = None
    help: str = ""


class Step(Model):
    """One verb with its parameters. ``accept``: exit codes that count as done; ``foreach``: once for each value."""

    name: Text
    verb: Text
    arguments: dict[Name, Given | Words] = Field(default={})
    accept: list[int] = Field(default=[0], min_length=1)
    foreach: dict[Name, Words] = Field(default={}, max_length=1)


class Playbook(Model):
    """A file's content: ``steps`` in their order."""

    playbook: Name
    description: str = ""
    parameters: dict[Name, Parameter] = Field(default={})
    steps: Annotated[list[Step], Field(min_length=1)]


@dataclass(frozen=True)
class Source:
    """A playbook with the file it was read from, as it is shown, and its lines."""

    playbook: Playbook
    path: Path
    shown: str
    document: Document = field(repr=False)

    def error(self, problems: list[Problem]) -> FleetError:
        """One error (exit 2) of all problems, each with its line."""
        return together(self.document, self.shown, problems, "the playbook")


def load_playbook(root: Path, word: str, look: Look = lambda data: []) -> Source:
    """The playbook of a file, or of ``playbooks/<word>.yaml`` below ``root``.

    FleetError (exit 2) names all that is wrong with it, with its lines; what ``look`` finds in a file whose keys are
    wrong too.
    """
    path = Path(word)
    if path.suffix not in (".yaml", ".yml"):
        path = root / FOLDER / f"{word}.yaml"
    if not path.is_file():
        what, where = f"no playbook {word}", str(path)
        if Path(word).is_file():
            what, where = f"{word} is no playbook: a playbook's file ends in .yaml", word
        raise FleetError(what, where, hint(word, playbooks(root), "playbooks"))
    shown = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    document = read(path)
    data = None if document.problems and document.data is None else _with_verbs(document)
    problems = document.problems
    if data is not None:
        try:
            playbook = Playbook.model_validate({"playbook": path.stem, **data})
        except ValidationError as error:
            said = [problem.key for problem in problems]
            problems += [
                problem
                for problem in in_words(error, data, Playbook)
                if not any(problem.key[: len(key)] == key for key in said)
            ]
        if problems:
            problems += look(data)
    if problems:
        raise together(document, shown, problems, "the playbook")
    return Source(playbook, path, shown, document)


def playbooks(root: Path) -> list[str]:
    """The names of the playbooks in the fleet folder."""
    return sorted(path.stem for path in (root / FOLDER).glob("*.yaml"))


def _with_verbs(document: Document) -> dict[str, Any] | None:
    """The file's data with ``{name, <verb>: {..}}`` as ``{name, verb, arguments}``; problems go to the document."""
    if not isinstance(document.data, dict):
        document.problems.append(Problem((), "the file describes no playbook", "begin with playbook: NAME"))
        return None
    steps = document.data.get("steps")
    if not isinstance(steps, list):
        return document.data
    return {**document.data, "steps": [_step(document, at, step) for at, step in enumerate(steps)]}


def _step(document: Document, at: int, step: Any) -> Any:
    key: Key = ("steps", at)
    if not isinstance(step, dict):
        return step
    verbs = [name for name in step if name not in STEP_KEYS]
    if len(verbs) != 1:
        said = f"names {' and '.join(verbs)}" if verbs else "names no verb"
        document.problems.append(
            Problem(
                key,
                f"the step {at + 1} {said}",
                "a step is one verb of fleetctl: `deploy: {service: ddtree}`",
            )
        )
        return step
    verb = verbs[0]
    rest = {name: value for name, value in step.items() if name != verb}
    given = step[verb]
    for name in given if isinstance(given, dict) else ():
        document.lines.setdefault((*key, "arguments", name), document.line((*key, verb, name)))
    return {**rest, "verb": verb, "arguments": {} if given is None else given}
