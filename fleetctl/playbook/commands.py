"""Steps as command lines of fleetctl, checked against what its verbs take. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Any

import typer
from typer.core import TyperGroup, TyperOption

from fleetctl.inventory.document import Key, Problem
from fleetctl.inventory.nearest import hint
from fleetctl.playbook.document import Source, Step

Values = Mapping[str, str]


@dataclass(frozen=True)
class Command:
    """One run of a step: the words behind ``fleetctl``, what may be said of it, and its parameters as parsed."""

    step: str
    verb: tuple[str, ...]
    words: tuple[str, ...]
    accept: tuple[int, ...]
    has_plan: bool
    has_json: bool
    given: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def shown(self) -> str:
        """The command as it is typed."""
        return shlex.join(["fleetctl", *self.words])


def commands(source: Source, app: Any, values: Values) -> list[Command]:
    """Every command of the playbook, in order, with ``values`` in place of ``${name}``.

    FleetError (exit 2) names all that is wrong, with file and line.
    """
    problems: list[Problem] = []
    found: list[Command] = []
    for at, step in enumerate(source.playbook.steps):
        found += _of_step(("steps", at), step, app, values, problems)
    if problems:
        raise source.error(problems)
    return found


def wrong_words(data: Mapping[str, Any], app: Any) -> list[Problem]:
    """What is wrong with steps whatever the values: unknown verbs, parameters and ``${names}``.

    ``data`` is a playbook's as it stands in its file; what is of another kind than it should be is left out.
    """
    problems: list[Problem] = []
    names = list(_mapping(data.get("parameters")))
    steps = data.get("steps")
    for at, step in enumerate(steps if isinstance(steps, list) else []):
        key: Key = ("steps", at)
        verb = _mapping(step).get("verb")
        if not isinstance(verb, str) or (command := _verb(key, verb, app, problems)) is None:
            continue
        given = _mapping(step.get("arguments"))
        problems += _unknown(key, verb, given, command)
        _filled(key, verb, given, dict.fromkeys([*names, *_mapping(step.get("foreach"))], ""), problems)
    return problems


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _unknown(key: Key, verb: str, given: Iterable[str], command: Any) -> Iterator[Problem]:
    """Parameters that the verb does not take."""
    known = {name for param in command.params for name in _names(param)}
    for name in given:
        if name not in known:
            fix = hint(name, [_names(param)[0] for param in command.params if param.name], "parameters")
            yield Problem((*key, "arguments", name), f"{verb} takes no {name}", fix)


def _of_step(key: Key, step: Step, app: Any, values: Values, problems: list[Problem]) -> Iterator[Command]:
    verb = _verb(key, step.verb, app, problems)
    if verb is None:
        return
    known = {name for param in verb.params for name in _names(param)}
    problems += _unknown(key, step.verb, step.arguments, verb)
    for each in _rounds(step):
        filled = _filled(key, step.verb, step.arguments, {**values, **each}, problems)
        if filled is None or any(name not in known for name in step.arguments):
            return
        missing = [param for param in verb.params if param.required and not _given(param, filled)]
        for param in missing:
            problems.append(
                Problem(key, f"{step.verb} lacks {_names(param)[0]}", "every run of it needs one")
            )
        if missing:
            return
        parsed = _parsed(key, step, verb, filled, problems)
        if parsed is None:
            return
        words, given = parsed
        title = f"{Template(step.name).safe_substitute(values)}" + "".join(
            f" ({value})" for value in each.values()
        )
        yield Command(
            title,
            tuple(step.verb.split()),
            words,
            tuple(step.accept),
            "plan" in known,
            "json" in known,
            given,
        )


def _verb(key: Key, text: str, app: Any, problems: list[Problem]) -> Any | None:
    """The command behind ``env clone``."""
    command = app
    done: list[str] = []
    for word in text.split():
        inner = command.commands.get(word) if isinstance(command, TyperGroup) else None
        if inner is None:
            there = sorted(command.commands) if isinstance(command, TyperGroup) else []
            around = " ".join(done) or "fleetctl"
            problems.append(Problem(key, f"{around} has no verb {word}", hint(word, there, "verbs")))
            return None
        command = inner
        done.append(word)
    if isinstance(command, TyperGroup):
        hidden = [inner for inner in command.commands.values() if inner.hidden]
        if len(hidden) != 1:
            fix = hint("", sorted(command.commands), "verbs")
            problems.append(Problem(key, f"{text} is no verb but a group", fix))
            return None
        command = hidden[0]  # what `fleetctl doctor HOST` runs
    return command


def _names(param: Any) -> list[str]:
    """How a parameter may be called in a playbook: as on the command line, without dashes."""
    longs = [name[2:] for name in param.opts if name.startswith("--")]
    return list(dict.fromkeys([*longs, param.name or ""]))


def _given(param: Any, filled: Mapping[str, Any]) -> bool:
    return any(name in filled for name in _names(param))


def _rounds(step: Step) -> list[dict[str, str]]:
    if not step.foreach:
        return [{}]
    ((name, values),) = step.foreach.items()
    return [{name: str(value)} for value in values]


def _filled(
    key: Key, verb: str, arguments: Mapping[str, Any], values: Values, problems: list[Problem]
) -> dict[str, Any] | None:
    """The arguments with ``${name}`` replaced."""
    filled: dict[str, Any] = {}
    for name, given in arguments.items():
        try:
            filled[name] = (
                [_text(one, values) for one in given] if isinstance(given, list) else _text(given, values)
            )
        except KeyError as error:
            missing = str(error.args[0])
            what = f"{verb}'s {name} names ${{{missing}}}, which there is not"
            problems.append(
                Problem((*key, "arguments", name), what, hint(missing, list(values), "parameters"))
            )
        except ValueError:
            what = f"{verb}'s {name} has a $ that names nothing"
            problems.append(Problem((*key, "arguments", name), what, "write $$ for a dollar sign"))
    return filled if len(filled) == len(arguments) else None


def _text(given: Any, values: Values) -> Any:
    return Template(given).substitute(values) if isinstance(given, str) else given


def _parsed(
    key: Key, step: Step, verb: Any, filled: Mapping[str, Any], problems: list[Problem]
) -> tuple[tuple[str, ...], Mapping[str, Any]] | None:
    """Words, options first, then arguments behind ``--`` in the verb's own order; and what the verb reads in them."""
    options: list[str] = []
    arguments: list[str] = []
    before = len(problems)
    for param in verb.params:
        name = next((name for name in _names(param) if name in filled), None)
        if name is None:
            continue
        value = filled[name]
        place = (*key, "arguments", name)
        many = param.multiple or param.nargs == -1
        if isinstance(value, list) and not many:
            problems.append(Problem(place, f"{step.verb}'s {name} takes one value", "name one"))
            continue
        each = value if isinstance(value, list) else [value]
        problems += _wrong(place, step, name, param, each)
        if isinstance(param, TyperOption):
            options += _option(param, each)
        else:
            arguments += [str(one) for one in each]
    if len(problems) > before:
        return None
    separator = ["--"] if any(word.startswith("-") for word in arguments) else []
    words = [*options, *separator, *arguments]
    try:
        given = verb.make_context(step.verb, list(words)).params
    except typer.BadParameter as error:
        problems.append(Problem(key, f"{step.verb}: {error.format_message()}"))
        return None
    return (*step.verb.split(), *words), given


def _option(param: TyperOption, each: Sequence[Any]) -> list[str]:
    flag = next(name for name in param.opts if name.startswith("--"))
    if param.is_flag:
        return [flag] if each[0] else []
    return [f"{flag}={one}" for one in each]


def _wrong(place: Key, step: Step, name: str, param: Any, each: Sequence[Any]) -> Iterator[Problem]:
    is_flag = isinstance(param, TyperOption) and param.is_flag
    if is_flag and not isinstance(each[0], bool):
        yield Problem(place, f"{step.verb}'s {name} is true or false", "write true, or leave it out")
    if not is_flag and any(isinstance(one, bool) for one in each):
        yield Problem(place, f"{step.verb}'s {name} takes a value, not true or false")
