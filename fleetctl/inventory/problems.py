"""Pydantic's errors in the operator's words."""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fleetctl.errors import FleetError
from fleetctl.inventory.document import Document, Key, Problem, dotted
from fleetctl.inventory.models import Host
from fleetctl.inventory.nearest import hint, nearest
from fleetctl.words import counted

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
}
_PATTERNS = {
    "host": "use lower case letters, digits, - and .",
    "unit": "a unit's name ends in .service and has letters, digits, : _ . @ and - only",
    "path": "write an absolute path on the host: /…; a venv's has letters, digits and . _ / + : @ = - only",
    "template": "write the name of a file in templates/systemd/, without a folder",
    "spec": "write the name of a file in envs/, without .yaml",
    "args": "write arguments without their leading --",
    "env": "a variable's name has letters, digits and _ only",
}


def structure(data: Any) -> tuple[Host | None, list[Problem]]:
    """The host that ``data`` describes, or what is wrong with its keys and types."""
    if not isinstance(data, dict):
        return None, [Problem((), "the file describes no host", "begin with host: NAME")]
    try:
        return Host.model_validate(data), []
    except ValidationError as error:
        return None, in_words(error, data, Host)


def in_words(error: ValidationError, data: dict[str, Any], model: type[BaseModel]) -> list[Problem]:
    """What is wrong with ``data`` as a ``model``, one problem a key."""
    every = error.errors(include_url=False)
    meant = {
        (*details["loc"][:-1], nearest(str(details["loc"][-1]), _fields(details["loc"][:-1], model)))
        for details in every
        if details["type"] == "extra_forbidden"
    }
    found: dict[Key, Problem] = {}
    for details in every:
        if details["type"] == "missing" and details["loc"] in meant:
            continue  # misspelt, and said so where it stands
        problem = _problem(details, data, model)
        found.setdefault(problem.key, problem)
    return list(found.values())


def together(document: Document, shown: str, problems: list[Problem], whose: str) -> FleetError:
    """One error (exit 2) of all problems of the file ``shown``, each with its line; ``whose``: of what."""
    problems.sort(key=lambda problem: problem.line or document.line(problem.key))
    errors = [
        FleetError(problem.what, f"{shown}:{problem.line or document.line(problem.key)}", problem.fix)
        for problem in problems
    ]
    if len(errors) == 1:
        return errors[0]
    return FleetError(
        f"{len(errors)} errors in {whose}",
        where=errors[0].where,
        fix="correct the lines above",
        evidence=[f"{error}" + (f"; {error.fix}" if error.fix else "") for error in errors],
    )


def _problem(details: ErrorDetails, data: dict[str, Any], model: type[BaseModel]) -> Problem:
    key, bad_key = _key(details["loc"], data)
    name = dotted(key)
    kind = details["type"]
    given = details["input"]
    if kind == "extra_forbidden":
        return Problem(key, f"unknown key {name}", hint(str(key[-1]), _fields(key[:-1], model), "keys"))
    if kind == "missing":
        around = dotted(key[:-1])
        what = f"{around} has no {key[-1]}" if around else f"the key {key[-1]} is missing"
        return Problem(key, what, f"add {key[-1]}:")
    if key[:1] == ("services",) and key[2:3] == ("args",) and len(key) > 3 and not bad_key:
        fix = "an argument is text, a number, true, false, or a list of at least one of those"
        return Problem(key[:4], f"{dotted(key[:4])} is {_shown(given)}", fix)
    if kind in _TYPES:
        return Problem(key, f"{name} is {_shown(given)}, not {_TYPES[kind]}", _type_fix(kind, given))
    if kind == "literal_error":
        expected = details.get("ctx", {}).get("expected", "")
        choices = [choice.strip(" '") for choice in str(expected).replace(" or ", ", ").split(",")]
        return Problem(key, f"{name} is {_shown(given)}", hint(str(given), choices, "it can be"))
    if kind == "string_pattern_mismatch":
        word = next((part for part in reversed(key) if part in _PATTERNS), "")
        default = "use letters, digits, . _ and -, at most 63" if bad_key else ""
        what = (
            f"{key[-1]!r} cannot be a name in {dotted(key[:-1])}"
            if bad_key
            else f"{name} cannot be {_shown(given)}"
        )
        return Problem(key, what, _PATTERNS.get(str(word), default))
    if kind == "too_short":
        least = int(details.get("ctx", {}).get("min_length", 1))
        return Problem(
            key, f"{name} is {_shown(given)}: it needs at least {counted(least, 'entry', 'entries')}"
        )
    if kind == "value_error":
        return Problem(key, f"{name or 'the file'} {details['msg'].removeprefix('Value error, ')}")
    message = details["msg"][:1].lower() + details["msg"][1:]
    return Problem(key, f"{name} is {_shown(given)}: {message.replace('input ', '')}")


def _key(loc: tuple[int | str, ...], data: Any) -> tuple[Key, bool]:
    """The part of pydantic's location that the file has, or lacks; and whether it is about the key itself."""
    key: list[str | int] = []
    for index, part in enumerate(loc):
        if part == "[key]":
            return tuple(key), True
        known = isinstance(data, dict) or (isinstance(data, list) and isinstance(part, int))
        if not known:
            break
        key.append(part)
        try:
            data = data[part]
        except (KeyError, IndexError):
            if index < len(loc) - 1:
                break
    return tuple(key), False


def _fields(key: Key, model: Any) -> list[str]:
    """The names that the mapping at ``key`` of a ``model`` can have."""
    for part in key:
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[str(part)].annotation
        else:
            model = get_args(model)[-1]
        model = next((one for one in get_args(model) if isinstance(model, UnionType) and one), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _type_fix(kind: str, given: Any) -> str:
    if kind == "string_type" and isinstance(given, bool | int | float):
        return f'quote it: "{_shown(given)}"'
    if kind in ("int_type", "float_type") and isinstance(given, str):
        return "write a number, without quotes"
    return ""


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "keys with values"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return repr(value) if isinstance(value, str) else str(value)
