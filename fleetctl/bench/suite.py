"""A suite: what is measured, what varies, how often. YAML in ``playbooks/bench/``, errors with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from fleetctl.bench import bounds
from fleetctl.bench.prompts import Prompt, check_prompts, load_prompts, missing
from fleetctl.errors import FleetError
from fleetctl.inventory.document import Problem, read
from fleetctl.inventory.models import Model, Name, Scalar, Seconds, Text
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.problems import in_words, together

FOLDER = "playbooks/bench"
Positive = Annotated[int, Field(ge=1)]
Tokens = Annotated[int, Field(ge=1, le=bounds.TOKENS)]
AtOnce = Annotated[int, Field(ge=1, le=bounds.CONCURRENCY)]


class Suite(Model):
    """What a suite's file says. Lists that vary nothing are empty; ``services`` empty: those of the command line."""

    suite: Name = ""
    description: str = ""
    prompts: Text | list[Prompt] = "five-prompts.yaml"
    max_tokens: Tokens = 256
    repeats: Annotated[int, Field(ge=1, le=bounds.ROUNDS)] = 3
    warmup: Annotated[int, Field(ge=0, le=bounds.WARMUP)] = 1
    concurrency: list[AtOnce] = Field(default=[1], min_length=1)
    services: list[Name] = Field(default=[])
    vary: dict[Name, Annotated[list[Scalar], Field(min_length=1)]] = Field(default={})
    context_tokens: list[Tokens] = Field(default=[])
    turns: Positive = 1
    tp: list[Positive] = Field(default=[])
    order: Literal["interleaved", "blocks"] = "interleaved"
    seed: int = 1
    compare_outputs: bool = True
    time_limit: Seconds | None = None

    _folder: Path = PrivateAttr(Path())

    def read_prompts(self, root: Path) -> list[Prompt]:
        """The prompts, from beside the suite's file or from the fleet folder ``root`` where it names a file."""
        if not isinstance(self.prompts, str):
            return self.prompts
        places = [self._folder / self.prompts, root / FOLDER / self.prompts, root / self.prompts]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            looked = list(dict.fromkeys(place.parent for place in places))
            raise missing(self.prompts, looked, f"the prompts of the suite {self.suite}")
        return load_prompts(found)

    def with_(self, **changes: Any) -> Suite:
        """This suite with other values, checked; ``prompts`` from beside the same file."""
        changed = Suite.model_validate({**dict(self), **changes})
        changed._folder = self._folder
        return changed


def load_suite(root: Path, word: str) -> Suite:
    """The suite of a file, or of ``playbooks/bench/<word>.yaml`` below ``root``.

    FleetError (exit 2) names all that is wrong with it, with its lines.
    """
    path = Path(word)
    if path.suffix not in (".yaml", ".yml"):
        path = root / FOLDER / f"{word}.yaml"
    if not path.is_file():
        raise FleetError(f"no suite {word}", str(path), hint(word, suites(root), "suites"))
    shown = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    document = read(path)
    if not document.problems and not isinstance(document.data, dict):
        document.problems.append(Problem((), "the file describes no suite", "begin with suite: NAME"))
    if document.problems:
        raise together(document, shown, document.problems, "the suite")
    data = {"suite": path.stem, **document.data}
    if isinstance(data.get("prompts"), list):
        data["prompts"] = check_prompts(document, shown, data["prompts"])
    try:
        suite = Suite.model_validate(data)
    except ValidationError as error:
        raise together(document, shown, in_words(error, data, Suite), "the suite") from None
    suite._folder = path.parent
    return suite


def suites(root: Path) -> list[str]:
    """The names of the suites in the fleet folder."""
    return sorted(path.stem for path in (root / FOLDER).glob("*.yaml"))
