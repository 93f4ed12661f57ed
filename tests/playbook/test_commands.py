"""A playbook's steps as command lines, and what is said of one that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from fleetctl.cli.app import whole
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet, load_fleet
from fleetctl.playbook.check import check_commands
from fleetctl.playbook.commands import Command, commands, wrong_words
from fleetctl.playbook.document import Source, load_playbook, playbooks
from fleetctl.playbook.folder import load_all
from fleetctl.playbook.record import Record
from fleetctl.playbook.run import run_playbook
from fleetctl.playbook.values import read_values

REPOSITORY = Path(__file__).parents[2]
VERBS: Any = get_command(whole())
HEAD = "playbook: try\nparameters:\n  target: {type: host}\n  count: {type: integer, default: 3}\nsteps:\n"


@pytest.fixture
def fleet() -> Fleet:
    return load_fleet(REPOSITORY, "inventories/lab")


def written(folder: Path, steps: str, head: str = HEAD) -> Source:
    path = folder / "try.yaml"
    path.write_text(head + steps)
    return load_playbook(folder, str(path))


def lines(source: Source, **values: str) -> list[str]:
    return [command.shown for command in commands(source, VERBS, {"target": "ct200", "count": "3", **values})]


def refusal(folder: Path, steps: str) -> FleetError:
    with pytest.raises(FleetError) as caught:
        lines(written(folder, steps))
    assert caught.value.exit == Exit.INPUT
    return caught.value


def test_options_arguments_flags_and_values(tmp_path: Path) -> None:
    steps = (
        "  - name: serve\n    deploy: {hosts: ['${target}', ct129], service: dd tree, fix: true, plan: false}\n"
        "  - name: say\n    logs: {host: '${target}', lines: '${count}'}\n"
        "  - name: look\n    doctor: {hosts: '${target}'}\n"
        "  - name: copy\n    env clone: {source: '${target}:a', name: 'b$$c'}\n"
    )
    assert lines(written(tmp_path, steps)) == [
        "fleetctl deploy '--service=dd tree' --fix ct200 ct129",
        "fleetctl logs --lines=3 ct200",
        "fleetctl doctor ct200",
        "fleetctl env clone ct200:a 'b$c'",
    ]


def test_once_for_each(tmp_path: Path) -> None:
    steps = "  - name: look\n    foreach: {host: [ct200, ct129]}\n    status: {hosts: '${host}'}\n"
    found = commands(written(tmp_path, steps), VERBS, {"target": "x", "count": "1"})
    assert [(one.step, one.shown) for one in found] == [
        ("look (ct200)", "fleetctl status ct200"),
        ("look (ct129)", "fleetctl status ct129"),
    ]


@pytest.mark.parametrize(
    ("steps", "what", "fix", "line"),
    [
        ("  - name: x\n    deplyo: {}\n", "fleetctl has no verb deplyo", "did you mean deploy?", 6),
        ("  - name: x\n    env: {}\n", "env is no verb but a group", "clone", 6),
        ("  - name: x\n    env clonee: {}\n", "env has no verb clonee", "did you mean clone?", 6),
        ("  - name: x\n    deploy: {servce: a}\n", "deploy takes no servce", "did you mean service?", 7),
        (
            "  - name: x\n    deploy: {hosts: '${targt}'}\n",
            "deploy's hosts names ${targt}",
            "did you mean target?",
            7,
        ),
        ("  - name: x\n    deploy: {hosts: 'a$ b'}\n", "has a $ that names nothing", "$$", 7),
        ("  - name: x\n    deploy: {fix: 'yes'}\n", "deploy's fix is true or false", "write true", 7),
        ("  - name: x\n    deploy: {service: true}\n", "takes a value, not true or false", "", 7),
        ("  - name: x\n    deploy: {service: [a, b]}\n", "takes one value", "name one", 7),
        ("  - name: x\n    swap: {old: a}\n", "swap lacks new", "", 6),
        ("  - name: x\n    logs: {lines: many}\n", "logs: Invalid value for", "", 6),
        ("  - name: x\n", "the step 1 names no verb", "a step is one verb", 6),
        ("  - name: x\n    deploy: {}\n    swap: {}\n", "the step 1 names deploy and swap", "", 6),
        ("  - name: x\n    accpet: [5]\n    deploy: {}\n", "the step 1 names accpet and deploy", "", 6),
        ("  - name: x\n    accept: yes\n    deploy: {}\n", "steps[0].accept is 'yes', not a list", "", 7),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, steps: str, what: str, fix: str, line: int
) -> None:
    error = refusal(tmp_path, steps)
    assert what in error.what
    assert fix in error.fix
    assert error.where == f"try.yaml:{line}"


def test_every_error_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    error = refusal(tmp_path, "  - name: x\n    deplyo: {}\n  - name: y\n    swap: {old: a}\n")
    assert (error.what, len(error.evidence)) == ("2 errors in the playbook", 2)


def test_what_is_wrong_with_a_key_hides_no_wrong_verb(tmp_path: Path) -> None:
    steps = (
        "  - deplyo: {}\n  - name: y\n    deploy: {servce: a, hosts: '${zz}'}\n"
        "  - name: z\n    name: zz\n  - name: w\n    accept: yes\n    swap: {old: a, new: b}\n"
    )
    path = tmp_path / "try.yaml"
    path.write_text(HEAD + steps)
    with pytest.raises(FleetError) as caught:
        load_playbook(tmp_path, str(path), lambda data: wrong_words(data, VERBS))
    told = "\n".join(caught.value.evidence)
    for what in (
        "steps[0] has no name",
        "no verb deplyo",
        "deploy takes no servce",
        "names ${zz}",
        "steps[2].name stands twice",
        "the step 3 names no verb",
        "steps[3].accept is 'yes'",
    ):
        assert what in told
    assert caught.value.what == "7 errors in the playbook"


def test_the_list_has_good_and_broken_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "playbooks"
    folder.mkdir()
    (tmp_path / "inventories").mkdir()
    (folder / "good.yaml").write_text(
        HEAD.replace("try", "good") + "  - name: x\n    logs: {lines: '${count}'}\n"
    )
    (folder / "keys.yaml").write_text("playbook: keys\nsteps: 5\n")
    (folder / "names.yaml").write_text("playbook: names\nsteps:\n  - name: x\n    deploy: {hosts: '${zz}'}\n")
    (folder / "verb.yaml").write_text("playbook: verb\nsteps:\n  - name: x\n    deplyo: {}\n")
    (folder / "yaml.yaml").write_text("[")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(whole(), ["playbook", "list", "--json"])
    assert result.exit_code == Exit.INPUT
    said = json.loads(result.stdout)
    assert [one["playbook"] for one in said["playbooks"]] == ["good"]
    assert [one["where"].split(":")[0] for one in said["errors"]] == [
        f"playbooks/{name}.yaml" for name in ("keys", "names", "verb", "yaml")
    ]
    shown = CliRunner().invoke(whole(), ["playbook", "list"])
    assert shown.exit_code == Exit.INPUT
    assert "good" in shown.stdout
    assert "no verb deplyo" in shown.stderr


def test_the_repository_s_own_playbooks_are_right() -> None:
    good, errors = load_all(REPOSITORY, VERBS)
    assert errors == []
    assert [source.playbook.playbook for source in good] == playbooks(REPOSITORY)


def test_a_file_of_another_kind_is_no_playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("# A\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FleetError, match=r"README.md is no playbook: a playbook's file ends in .yaml"):
        load_playbook(tmp_path, "README.md")
    with pytest.raises(FleetError, match="no playbook nosuch"):
        load_playbook(tmp_path, "nosuch")


@given(value=st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_no_value_becomes_more_than_its_word(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    source = written(
        tmp_path_factory.mktemp("p"), "  - name: x\n    deploy: {service: '${target}', hosts: '${count}'}\n"
    )
    (command,) = commands(source, VERBS, {"target": value, "count": value})
    separator = ("--",) if value.startswith("-") else ()
    assert command.words == ("deploy", f"--service={value}", *separator, value)


def test_values_are_checked_by_their_type(fleet: Fleet, tmp_path: Path) -> None:
    source = written(tmp_path, "  - name: x\n    status: {hosts: '${target}'}\n")
    assert read_values(source, ["target=ct200"], fleet) == {"target": "ct200", "count": "3"}
    for words, what in (
        (["target=ct20"], "target: no host ct20"),
        ([], "the parameter target is missing"),
        (["target=ct200", "count=x"], "count is 'x', not a whole number"),
        (["targt=ct200"], "try has no parameter targt"),
        (["ct200"], "'ct200' is no NAME=VALUE"),
    ):
        with pytest.raises(FleetError) as caught:
            read_values(source, words, fleet)
        assert caught.value.what == what


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("stop: {hosts: ct129, service: ddtree}", "no service ddtree on ct129"),
        ("deploy: {hosts: ct200, slot: natve}", "no slot natve on ct200"),
        ("deploy: {hosts: ct2, service: dflash}", "no host ct2"),
        ("deploy: {service: dflash, hosts: ct129, blue-green: true}", "has no second place for --blue-green"),
        ("swap: {old: dflash, new: wrapper, host: ct200}", "share no slot on ct200"),
        ("rollback: {hosts: ct200, slot: natve}", "no slot natve on ct200"),
        ("status: {hosts: 'gpus>=99'}", "no host "),
        ("doctor: {hosts: ct200, service: dtree}", "no service dtree on ct200"),
        ("env build: {hosts: ct200, name: nosuch}", "nosuch"),
        ("bench run: {host: ct129, services: [ddtree]}", "no service ddtree on ct129"),
        ("sweep: {host: ct129, suite: nosuch}", "nosuch"),
    ],
)
def test_a_step_that_the_inventory_rules_out_is_named_before_any_is_begun(
    fleet: Fleet, tmp_path: Path, verb: str, said: str
) -> None:
    steps = f"  - name: good\n    status: {{hosts: ct200}}\n  - name: bad\n    {verb}\n"
    values = {"target": "ct200", "count": "3"}
    found = commands(written(tmp_path, steps), VERBS, values)
    with pytest.raises(FleetError) as caught:
        check_commands(found, fleet, set())
    assert caught.value.what.startswith("step 2 of 2, bad: ") and said in caught.value.what
    assert caught.value.exit == Exit.INPUT
    check_commands(found, fleet, {1})
    accepted = commands(written(tmp_path, f"{steps}    accept: [0, 2]\n"), VERBS, values)
    check_commands(accepted, fleet, set())
    adopted = f"  - name: new\n    adopt: {{host: ct201}}\n{steps}"
    check_commands(commands(written(tmp_path, adopted), VERBS, values), fleet, set())


@pytest.mark.parametrize("name", playbooks(REPOSITORY))
def test_every_shipped_playbook_is_right(name: str) -> None:
    source = load_playbook(REPOSITORY, name)
    values = {
        key: "x" if one.default is None else str(one.default)
        for key, one in source.playbook.parameters.items()
    }
    assert commands(source, VERBS, values)
    assert all(one.help or key == one.type for key, one in source.playbook.parameters.items())


def test_a_run_goes_on_behind_what_the_last_one_ended(tmp_path: Path) -> None:
    todo = [Command(str(n), ("status",), ("status", str(n)), (0,), False, True) for n in range(4)]
    first = Record(tmp_path, "try", todo)
    assert first.done() == set()
    first.add(0, "done", todo[0])
    first.add(1, "begin", todo[1])
    first.path.write_text(first.path.read_text() + '{"run": "torn')
    second = Record(tmp_path, "try", todo)
    assert second.done() == {0}
    assert Record(tmp_path, "try", todo[:3]).done() == set(), "other commands are another run"


def test_nothing_begins_where_the_record_cannot_be_written(tmp_path: Path) -> None:
    todo = [Command("look", ("status",), ("status",), (0,), False, True)]
    record = Record(tmp_path, "try", todo)
    record.path.parent.mkdir(parents=True)
    record.path.symlink_to("/dev/full")
    with pytest.raises(FleetError, match=r"No space left on device; step 1 was not begun") as caught:
        run_playbook(todo, record, (), False, lambda event: None)
    assert caught.value.exit == Exit.INPUT and caught.value.where == str(record.path)
    with pytest.raises(FleetError, match="step 1 is done, and --resume would not know it"):
        record.add(0, "done", todo[0], exit=0)
