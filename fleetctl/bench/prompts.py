"""Prompts to measure with, read from a playbook."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetctl.errors import FleetError


class Prompt(BaseModel):
    """One user turn: its name in tables, the kind of text it asks for, and the words."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: str
    text: str


class _Playbook(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prompts: list[Prompt] = Field(min_length=1)


def load_prompts(path: Path) -> list[Prompt]:
    """The prompts of the YAML file ``path``; FleetError where it is missing or says something else."""
    try:
        return _Playbook.model_validate(yaml.safe_load(path.read_text())).prompts
    except OSError as error:
        raise FleetError(f"{error.strerror}", str(path), "give a file with `prompts:`") from None
    except yaml.YAMLError as error:
        raise FleetError(f"not YAML: {error}", str(path), "correct the file") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise FleetError(
            f"{where}: {first['msg']}", str(path), "each prompt has name, kind and text"
        ) from None
