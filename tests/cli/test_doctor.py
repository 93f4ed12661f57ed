"""``doctor`` on recorded facts and logs: what it prints, how it ends, and what it refuses. No host is needed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from fleetctl.cli.app import whole
from fleetctl.cli.doctor_screen import MOST, lines
from fleetctl.doctor.diagnosis import Diagnosis, Said, diagnose
from fleetctl.doctor.finding import Finding, Remedy
from fleetctl.doctor.rule import Context, Found, Rule
from fleetctl.errors import Exit, FleetError
from tests.cli.terminal import in_terminal, piped
from tests.doctor import builders

ODD = st.sampled_from([None, 5, "x", [], [1], {}, {"x": 1}, {"x": []}, [{}], True])
FACTS_KEYS = sorted([*builders.facts(), "named"])
FAULTS = {"distributions": {"soundfile": None, "xgrammar": "0.1.10"}}
RUN = "import sys; from fleetctl.cli.app import main; sys.argv[0] = 'fleetctl'; main()"


def doctor(*words: str) -> Result:
    """Run ``fleetctl doctor``."""
    return CliRunner().invoke(whole(), ["doctor", *words])


def refused(*words: str) -> FleetError:
    """The error that ends a run."""
    error = doctor(*words).exception
    assert isinstance(error, FleetError), error
    assert error.exit == Exit.INPUT
    return error


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Facts of a host whose environment has two faults."""
    facts = builders.facts({"toolkits": ["13.0"]})
    facts["environments"] = {"/home/zqanna/env": builders.bom(FAULTS)}
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts))
    return path


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet folder with one host whose service is SGLang."""
    folder = tmp_path / "fleet"
    (folder / "inventories").mkdir(parents=True)
    service = {
        "slot": "native",
        "engine": "sglang",
        "mode": "autoregressive",
        "model": "m",
        "environment": "e",
    }
    host = {
        "host": "zqhost",
        "ssh": {"hostname": "192.0.2.7"},
        "gpus": {"count": 2},
        "slots": {"native": {"gpus": [0], "port": 30001}},
        "environments": {"e": {"path": "/home/zqanna/env"}},
        "models": {"m": {"path": builders.MODEL}},
        "services": {"plain": service, "fa3": {**service, "args": {"attention-backend": "fa3"}}},
    }
    (folder / "inventories/zqhost.yaml").write_text(yaml.safe_dump(host, sort_keys=False))
    monkeypatch.setenv("FLEETCTL_FLEET", str(folder))
    monkeypatch.setenv("FLEETCTL_INVENTORY", "inventories")
    return folder


def test_recorded_facts_are_examined_without_a_fleet(recorded: Path) -> None:
    result = doctor("--facts", str(recorded))
    assert result.exit_code == Exit.PREFLIGHT
    shown = result.stdout.splitlines()
    assert shown[0].startswith(
        "ct200  2 × RTX PRO 6000 Blackwell Server Edition (SM 12.0) · driver 580.159.04 (CUDA 13.0)"
    )
    assert "checks passed (/home/zqanna/env)" in shown[1]
    assert [line for line in shown if line.startswith("error: soundfile")]


def test_with_a_host_its_services_are_examined_on_those_facts(recorded: Path, fleet: Path) -> None:
    document = json.loads(doctor("zqhost", "--facts", str(recorded), "--json").stdout)
    assert document["schema"] == 1
    host = document["hosts"][0]
    assert host["host"] == "zqhost"
    assert host["examined"] == ["plain", "fa3"]
    by_rule = {one["rule"]: one for one in host["findings"]}
    assert by_rule["pkg-soundfile"]["of"] == [], "of both services: said once, of the host"
    assert by_rule["cfg-fa3-on-sm120"]["of"] == ["fa3"]
    assert by_rule["cfg-fa3-on-sm120"]["remedy"]["arguments"] == {"attention-backend": "triton"}
    assert host["counts"]["error"] == sum(one["severity"] == "error" for one in host["findings"])
    one = json.loads(doctor("zqhost", "--facts", str(recorded), "--service", "plain", "--json").stdout)[
        "hosts"
    ][0]
    assert one["examined"] == ["plain"]
    assert "cfg-fa3-on-sm120" not in {each["rule"] for each in one["findings"]}


def test_each_document_has_the_same_keys(recorded: Path) -> None:
    host = json.loads(doctor("--facts", str(recorded), "--json").stdout)["hosts"][0]
    assert set(host) == {"host", "examined", "findings", "counts", "passed", "not_made", "error"}
    keys = {"rule", "family", "severity", "what", "where", "of", "evidence", "remedy"}
    assert all(set(one) == keys for one in host["findings"])


def test_a_log_needs_neither_fleet_nor_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "journal"
    log.write_text("ModuleNotFoundError: No module named 'soundfile'\n")
    result = doctor("--log", str(log))
    assert result.exit_code == Exit.PREFLIGHT
    assert "pkg-soundfile" in result.stdout
    log.write_text("[2026-11-29 12:00:40] The server is fired up and ready to roll!\n")
    result = doctor("--log", str(log))
    assert result.exit_code == 0
    assert "no line of it says why" in result.stdout
    piped_in = CliRunner().invoke(
        whole(), ["doctor", "--log", "-"], input="ImportError: libnuma.so.1: cannot open shared object file\n"
    )
    assert "sys-libnuma" in piped_in.stdout


def test_an_empty_log_is_wrong_input(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    for content in (b"", gzip.compress(b"")):
        log.write_bytes(content)
        error = refused("--log", str(log))
        assert (error.what, error.where) == ("the log is empty", str(log))
    error = refused("--log", "-")
    assert (error.what, error.where) == ("the log is empty", "standard input")


def test_warnings_alone_are_exit_0(tmp_path: Path) -> None:
    facts = builders.facts({"gpus": [{"temperature": 95}]})
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts))
    result = doctor("--facts", str(path))
    assert result.exit_code == 0
    assert "1 warning" in result.stdout


def test_markdown_tells_no_names(recorded: Path, fleet: Path) -> None:
    said = doctor("zqhost", "--facts", str(recorded), "--markdown").stdout
    assert said.startswith("### fleetctl doctor\n")
    assert "`cp312-torch2.11-cu130-cxx11-glibc2.39-sm120`" in said
    assert "(`pkg-soundfile`)" in said
    for secret in ("zqhost", "zqanna", "192.0.2.7", "/home"):
        assert secret not in said


def test_what_does_not_go_together_is_said(recorded: Path, fleet: Path) -> None:
    facts = str(recorded)
    assert "--local and --facts" in refused("--local", "--facts", facts).what
    assert "of one host" in refused("a", "b", "--facts", facts).what
    assert "--json and --markdown" in refused("--facts", facts, "--json", "--markdown").what
    assert "--deep" in refused("--facts", facts, "--deep").what
    assert "whose service plain" in refused("--facts", facts, "--service", "plain").what
    assert "zqhost" in refused("zqhots", "--facts", facts).fix
    assert "did you mean plain" in refused("zqhost", "--facts", facts, "--service", "plian").fix
    assert "no environment /nowhere" in refused("--facts", facts, "--env", "/nowhere").what
    assert "no host has a service" in refused("--service", "nobody").what
    assert (
        "no log" in refused("--log", str(fleet / "absent")).what
        or refused("--log", str(fleet / "absent")).where
    )


def test_files_that_are_no_facts(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    for text, word in (
        ("{", "not JSON"),
        ("[]", "no schema"),
        ('{"schema": 99}', "schema 99"),
        ("\0", "not JSON"),
    ):
        path.write_text(text)
        error = refused("--facts", str(path))
        assert word in error.what
        assert "fleetctl facts HOST" in error.fix
    assert "fleetctl facts HOST" in refused("--facts", str(tmp_path / "absent")).fix


def test_an_unknown_rule_has_few_words() -> None:
    assert refused("explain", "nope").fix == "`fleetctl doctor rules` lists them"
    near = refused("explain", "drv-libcudda").fix
    assert near.startswith("did you mean drv-libcuda")
    assert len(near) < 150


def test_rules_by_family_and_one_explained() -> None:
    shown = doctor("rules").stdout.splitlines()
    assert shown[0].split() == ["FAMILY", "RULE", "SEVERITY", "WHY"]
    families = [line.split()[0] for line in shown[1:]]
    assert families == sorted(
        families, key=["ABI", "ARCH", "PKG", "DRV", "GPU", "MODEL", "SYS", "NET", "SVC", "CFG"].index
    )
    said = doctor("explain", "pkg-structural-tag").stdout
    for word in ("why ", "source ", "remedy ", "log ", "example ", "xgrammar"):
        assert word in said
    about = json.loads(doctor("explain", "pkg-structural-tag", "--json").stdout)
    assert about["severity"] == "error"
    assert about["cases"]
    assert "did you mean pkg-soundfile" in refused("explain", "pkg-sounfile").fix


def test_a_host_may_be_called_like_a_verb() -> None:
    assert "no host rules" in refused("--", "rules").what


def test_colours_on_a_terminal_and_none_in_a_pipe(recorded: Path) -> None:
    arguments = ("doctor", "--facts", str(recorded))
    plain = piped(RUN, *arguments)
    assert plain.code == Exit.PREFLIGHT
    assert "\x1b" not in plain.out
    shown = in_terminal(RUN, *arguments, columns=100)
    assert "\x1b[1;31merror: " in shown.out
    assert all(len(line) < 400 for line in shown.out.splitlines())


def test_the_words_complete(fleet: Path) -> None:
    def completed(typed: str) -> str:
        asked = {
            "_FLEETCTL_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split(" ")) - 1),
        }
        folder = {"FLEETCTL_FLEET": str(fleet), "FLEETCTL_INVENTORY": "inventories"}
        return CliRunner().invoke(whole(), [], env={**asked, **folder}, prog_name="fleetctl").stdout

    assert set(completed("fleetctl doctor ").split()) >= {"zqhost", "explain", "rules"}
    assert completed("fleetctl doctor explain pkg-soun").split() == ["pkg-soundfile"]
    assert completed("fleetctl doctor zqhost --service fa").split() == ["fa3"]


def test_a_screen_holds_the_worst_and_counts_the_rest() -> None:
    found = [Finding("sys-x", "warning" if n % 2 else "error", f"fault {n}") for n in range(30)]
    shown = Diagnosis("h", tuple(Said(one) for one in sorted(found, key=lambda one: one.severity)))
    text = ["".join(part for part, _ in parts) for _, parts in lines(shown)]
    assert sum("fault" in line for line in text) == MOST
    assert "and 18 more" in text[-1]
    assert all("error" in line for line in text[2 : 2 + MOST])


def test_equal_findings_are_one_and_others_stay_apart() -> None:
    def check(context: Context) -> Any:
        if context.service:
            yield Found("same", context.service.name, [f"of {context.service.name}"])
            yield Found(f"other {context.service.name}")

    rules = {"sys-x": Rule("sys-x", "warning", "r", "s", Remedy("do"), check)}
    two = [(name, Context(service=builders.service({"name": name}))) for name in ("a", "b")]
    said = diagnose("h", [("", Context()), *two], rules=rules).said
    assert [(one.finding.what, one.where, one.of) for one in said] == [
        ("same", ("a", "b"), ()),
        ("other a", (), ("a",)),
        ("other b", (), ("b",)),
    ]
    assert said[0].finding.evidence == ("of a", "of b")


CPU_ONLY = {
    "distributions": {"torch": {"version": "2.11.0+cpu"}},
    "extensions": {
        "lib/python3.12/site-packages/torch/lib/libc10_cuda.so": None,
        "lib/python3.12/site-packages/torch/lib/libtorch_cuda.so": None,
        "lib/python3.12/site-packages/torch/lib/libtorch_cpu.so": {"cuda": None},
    },
}


@pytest.mark.parametrize(
    ("environments", "severity"),
    [
        ({}, "error"),
        ({"/cpu": CPU_ONLY}, "warning"),
        ({"/cpu": CPU_ONLY, "/cpu2": CPU_ONLY}, "warning"),
        ({"/cpu": CPU_ONLY, "/cuda": {}}, "error"),
    ],
)
def test_a_missing_libcuda_is_told_once(tmp_path: Path, environments: dict[str, Any], severity: str) -> None:
    facts = builders.facts({"libraries": {"libcuda.so.1": False}})
    facts["environments"] = {path: builders.bom({**bom, "path": path}) for path, bom in environments.items()}
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts))
    (host,) = json.loads(doctor("--facts", str(path), "--json").stdout)["hosts"]
    told = [one for one in host["findings"] if one["rule"] == "drv-libcuda"]
    assert [one["severity"] for one in told] == [severity]


def test_a_check_that_fails_is_a_finding_and_no_rule_that_passed() -> None:
    def check(context: Context) -> Any:
        raise KeyError("x")

    found = diagnose(
        "h", [("", Context())], rules={"sys-x": Rule("sys-x", "error", "r", "s", Remedy(""), check)}
    )
    assert found.not_made == {"sys-x": "KeyError: 'x'"}
    assert not found.has_error
    assert found.passed == ()
    assert found.said[0].finding.what == "the check sys-x could not be made"


@given(st.dictionaries(st.sampled_from(FACTS_KEYS), ODD))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_of_the_schema_is_examined(fleet: Path, parts: dict[str, Any]) -> None:
    path = fleet / "odd.json"
    path.write_text(json.dumps({**parts, "schema": 1}))
    for words in (["--facts", str(path)], ["zqhost", "--facts", str(path)]):
        result = doctor(*words)
        assert result.exit_code in (0, 5), result.exception
