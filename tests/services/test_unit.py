"""Units rendered from templates: what systemd says of them, and what is said of templates that are wrong."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet, load_fleet
from fleetctl.services.unit import render_unit
from tests.services import systemd
from tests.services.conftest import REPOSITORY
from tests.services.test_quoting import TEXT

EVERY = [
    (inventory, host.name, service)
    for inventory in ("inventories", "inventories/lab")
    for host in load_fleet(REPOSITORY, inventory).hosts.values()
    for service in host.services
]


@pytest.mark.parametrize(("inventory", "host", "service"), EVERY)
def test_systemd_finds_nothing_wrong_with_any_unit(
    inventory: str, host: str, service: str, environment: str, tmp_path: Path
) -> None:
    fleet = load_fleet(REPOSITORY, inventory)
    unit = render_unit(fleet, fleet.hosts[host], service, environment)
    assert unit.name == fleet.hosts[host].services[service].unit
    assert systemd.verify(unit.text, unit.name, tmp_path) == []
    assert unit.sha256 == hashlib.sha256(unit.text.encode()).hexdigest()


def test_the_same_service_gives_the_same_unit(lab_fleet: Fleet) -> None:
    host = lab_fleet.hosts["ct200"]
    assert render_unit(lab_fleet, host, "ddtree", "/venv") == render_unit(lab_fleet, host, "ddtree", "/venv")
    other = render_unit(lab_fleet, host, "ddtree", "/venv-2")
    assert other.sha256 != render_unit(lab_fleet, host, "ddtree", "/venv").sha256


def test_the_unit_has_the_deadline_gpus_and_an_end_to_crash_loops(lab_fleet: Fleet) -> None:
    host = lab_fleet.hosts["ct200"]
    text = render_unit(lab_fleet, host, "ddtree", "/venv").text
    assert systemd.settings(text, "TimeoutStopSec") == ["15"]
    assert "CUDA_VISIBLE_DEVICES=1" in systemd.settings(text, "Environment")
    (interval,) = systemd.settings(text, "StartLimitIntervalSec")
    (burst,) = systemd.settings(text, "StartLimitBurst")
    ready, pause = host.services["ddtree"].deadlines.ready, 2
    assert int(interval) >= int(burst) * (ready + pause), "deaths just before it is ready are counted too"
    assert systemd.settings(text, "WantedBy") == ["multi-user.target"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    args=st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True), TEXT, max_size=3),
    env=st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True), TEXT, max_size=3),
    model_id=TEXT.filter(bool),
)
def test_any_text_of_the_inventory_reaches_the_process(
    lab_fleet: Fleet, args: dict[str, str], env: dict[str, str], model_id: str
) -> None:
    host = lab_fleet.hosts["ct200"]
    service = host.services["ddtree"].model_copy(update={"args": args, "env": env, "model_id": model_id})
    changed = host.model_copy(update={"services": {"ddtree": service}})
    text = render_unit(lab_fleet, changed, "ddtree", "/venv").text

    (line,) = systemd.settings(text, "ExecStart")
    words = systemd.exec_words(line)
    for name, value in {"served-model-name": model_id, **args}.items():
        if value.startswith("-"):
            assert f"--{name}={value}" in words
        else:
            assert value in [after for word, after in itertools.pairwise(words) if word == f"--{name}"]
    variables = [word for value in systemd.settings(text, "Environment") for word in systemd.words(value)]
    assert [f"{name}={value}" for name, value in env.items()] == [
        assignment for assignment in variables if assignment.partition("=")[0] in env
    ]


@pytest.mark.parametrize(
    ("before", "after", "what", "line", "fix"),
    [
        ("{{ port }}", "{{ prot }}", "the template names prot, which there is not", 2, "did you mean port?"),
        (
            "{{ deadlines.stop }}",
            "{{ deadlines.stp }}",
            "the template names stp, which there is not",
            27,
            "did you mean stop? (names: drain, free, generate, ready, stop)",
        ),
        ("| exec }}", "| exc }}", "the template is wrong: No filter named 'exc'.", 14, "did you mean exec?"),
        (
            "{% endfor %}",
            "{% endfr %}",
            "the template is wrong: Encountered unknown tag",
            18,
            "correct the template",
        ),
        ("{{ port }}", "{{ port / 0 }}", "the template fails: division by zero", 2, "correct the template"),
        ("{{ port }}", "{{ port | exec }}", "the template fails:", 2, "correct the template"),
    ],
)
def test_a_template_that_is_wrong_is_named_with_its_line(
    folder: Path, before: str, after: str, what: str, line: int, fix: str
) -> None:
    template = folder / "templates" / "systemd" / "standalone.service.j2"
    text = template.read_text()
    assert before in text
    template.write_text(text.replace(before, after, 1))
    fleet = load_fleet(folder, "inventories/lab")
    with pytest.raises(FleetError) as caught:
        render_unit(fleet, fleet.hosts["ct200"], "ddtree", "/venv")
    assert caught.value.what.startswith(what)
    assert caught.value.where == f"templates/systemd/standalone.service.j2:{line}"
    assert fix in caught.value.fix
    assert caught.value.exit == Exit.INPUT


def test_the_line_of_an_included_template_is_named(folder: Path) -> None:
    templates = folder / "templates" / "systemd"
    (templates / "limits.j2").write_text("LimitNOFILE=1\nLimitCPU={{ nothing_known }}\n")
    main = templates / "standalone.service.j2"
    main.write_text(main.read_text().replace("LimitNOFILE=1048576\n", '{% include "limits.j2" %}'))
    fleet = load_fleet(folder, "inventories/lab")
    with pytest.raises(FleetError) as caught:
        render_unit(fleet, fleet.hosts["ct200"], "ddtree", "/venv")
    assert caught.value.where == "templates/systemd/limits.j2:2"


def test_a_template_that_is_not_there_is_named_where_it_is_asked_for(folder: Path) -> None:
    inventory = folder / "inventories" / "lab" / "ct200.yaml"
    lines = inventory.read_text().splitlines()
    at = lines.index("  ddtree:") + 1
    lines.insert(at, "    template: standalon.service.j2")
    inventory.write_text("\n".join(lines))
    fleet = load_fleet(folder, "inventories/lab")
    with pytest.raises(FleetError) as caught:
        render_unit(fleet, fleet.hosts["ct200"], "ddtree", "/venv")
    assert caught.value.what == "no template standalon.service.j2 in templates/systemd/"
    assert caught.value.where == f"inventories/lab/ct200.yaml:{at + 1}"
    assert "did you mean standalone.service.j2?" in caught.value.fix


def test_a_template_of_ones_own_is_used(folder: Path) -> None:
    (folder / "templates" / "systemd" / "own.service.j2").write_text(
        "[Service]\nExecStart={{ command | exec }}\n"
    )
    fleet = load_fleet(folder, "inventories/lab")
    host = fleet.hosts["ct200"]
    service = host.services["ddtree"].model_copy(update={"template": "own.service.j2"})
    changed = host.model_copy(update={"services": {"ddtree": service}})
    assert render_unit(fleet, changed, "ddtree", "/venv").text.startswith(
        "[Service]\nExecStart=/venv/bin/python -m"
    )


@pytest.mark.parametrize(("inventory", "host", "service"), EVERY)
def test_a_user_of_its_own_and_secrets_are_right_to_systemd(
    inventory: str, host: str, service: str, environment: str, tmp_path: Path
) -> None:
    fleet = load_fleet(REPOSITORY, inventory)
    chosen = fleet.hosts[host]
    if chosen.services[service].keep_unit:
        return
    own = chosen.services[service].model_copy(
        update={"user": "daemon", "secrets": {"HF_TOKEN": "env:HF_TOKEN"}}
    )
    changed = chosen.model_copy(update={"services": {service: own}})
    text = render_unit(
        fleet, changed, service, environment, secrets_file="/var/lib/fleetctl/secrets/x.env"
    ).text
    assert systemd.verify(text, own.unit, tmp_path) == []
    assert systemd.settings(text, "User") == ["daemon"]
    assert systemd.settings(text, "EnvironmentFile") == ["/var/lib/fleetctl/secrets/x.env"]
    assert systemd.settings(text, "NoNewPrivileges") == ["yes"]
    assert not systemd.settings(text, "PrivateDevices")
