"""An environment's file: what is wrong with it, and on which line."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fleetctl.environment.platform import HostPlatform
from fleetctl.environment.spec import load_spec, python_range
from fleetctl.errors import Exit, FleetError

REPOSITORY = Path(__file__).parents[2]
GOOD = 'name: tiny\npython: ">=3.11"\nrequirements:\n  - alpha==1.0\n  - Beta_b==2.0+cpu\n'


def write(root: Path, text: str, name: str = "tiny") -> Path:
    (root / "envs").mkdir(exist_ok=True)
    (root / "envs" / f"{name}.yaml").write_text(text)
    return root


def refused(root: Path, text: str, name: str = "tiny") -> FleetError:
    with pytest.raises(FleetError) as caught:
        load_spec(write(root, text), name)
    assert caught.value.exit == Exit.INPUT
    return caught.value


def test_a_good_file(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, GOOD), "tiny")
    assert (spec.name, spec.source, spec.requirements[1]) == ("tiny", "envs/tiny.yaml", "Beta_b==2.0+cpu")


def test_a_path_is_no_name(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "tiny.yaml").write_text(GOOD)
    with pytest.raises(FleetError) as caught:
        load_spec(tmp_path, "../tiny")
    assert (caught.value.exit, caught.value.where) == (Exit.INPUT, str(tmp_path / "envs"))
    assert caught.value.fix.startswith("did you mean tiny?")


def test_every_shipped_file_is_good_and_fully_pinned() -> None:
    specs = {file.stem: load_spec(REPOSITORY, file.stem) for file in (REPOSITORY / "envs").glob("*.yaml")}
    assert {
        "standalone-cpu",
        "sglang-0.5.11-cu130",
        "ct129-reference",
        "ct200-serving",
        "sglang-0.5.11-ddtree",
        "ct129-ddtree",
    } <= specs.keys()
    for spec in specs.values():
        assert all(Requirement(pin).specifier for pin in spec.requirements)
    sglang = {Requirement(pin).name for pin in specs["sglang-0.5.11-cu130"].requirements}
    assert {"torch", "sglang-kernel", "soundfile", "xgrammar", "flashinfer-cubin"} <= sglang


@pytest.mark.parametrize(
    ("line", "instead", "where", "what", "fix"),
    [
        ("python", "pyhton", "envs/tiny.yaml:2", "unknown key pyhton", "did you mean python"),
        ("name: tiny\npython", "pyton: 1\nnam", "envs/tiny.yaml:1", "2 errors", "correct the lines above"),
        ("  - alpha==1.0", "  - alpha>=1.0", "envs/tiny.yaml:4", "not pinned", ""),
        ("  - alpha==1.0", "  - alpha==1.*", "envs/tiny.yaml:4", "not pinned", ""),
        ("  - alpha==1.0", "  - alpha @ https://x/y.whl", "envs/tiny.yaml:4", "not pinned", ""),
        ("  - alpha==1.0", "  - alpha=1.0", "envs/tiny.yaml:4", "not a requirement", ""),
        ("  - alpha==1.0", "  - beta-b==1.0", "envs/tiny.yaml:5", "stands beside beta-b==1.0", "keep one"),
        ('">=3.11"', "3.11", "envs/tiny.yaml:2", "not text", "quote it"),
        ('">=3.11"', '"new"', "envs/tiny.yaml:2", "not a Python version", ""),
        ("name: tiny", "name: other", "envs/tiny.yaml:1", "its name other", "make them one"),
        ("name: tiny", "name: tiny\nlocal: [standalon]", "envs/tiny.yaml:2", "not a part of fleetctl", ""),
        ("name: tiny", "name: tiny\nimprots: [a]", "envs/tiny.yaml:2", "unknown key improts", "imports"),
        ("name: tiny", "name: [", "envs/tiny.yaml:3", "not YAML", ""),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, line: str, instead: str, where: str, what: str, fix: str
) -> None:
    assert line in GOOD
    error = refused(tmp_path, GOOD.replace(line, instead))
    assert what in error.what
    assert error.where == where
    assert fix in error.fix


DERIVED = 'name: tiny\npython: ">=3.11"\nbase: {path: /root/venv}\n'
OVERLAY = "overlays:\n  - source: {host: ct129, path: /root/ml-env}\n    distributions: [torch, nvidia-*]\n"


def test_an_environment_may_be_derived_from_another(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, DERIVED + OVERLAY + "patches: [ddtree]\n"), "tiny")
    assert spec.base is not None and (spec.base.path, spec.base.host) == ("/root/venv", None)
    assert (spec.overlays[0].source.host, spec.overlays[0].distributions) == ("ct129", ["torch", "nvidia-*"])
    assert spec.patches == ["ddtree"]


@pytest.mark.parametrize(
    ("text", "where", "what", "fix"),
    [
        (DERIVED.replace("path", "pth"), "envs/tiny.yaml:3", "unknown key base.pth", "did you mean path"),
        (DERIVED.replace("/root", "root"), "envs/tiny.yaml:3", "base.path cannot be", ""),
        (DERIVED.replace("}", ", spec: x}"), "envs/tiny.yaml:3", "exactly one of spec and path", ""),
        (DERIVED.replace("path: /root/venv", "spec: x, host: ct200"), "envs/tiny.yaml:3", "a host", ""),
        (DERIVED + "requirements: [alpha==1.0]\n", "envs/tiny.yaml:1", "is derived from a base", ""),
        (GOOD + "patches: [x]\n", "envs/tiny.yaml:1", "patches but no base", ""),
        ('name: tiny\npython: "3.11"\n', "envs/tiny.yaml:1", "neither requirements", ""),
        (DERIVED + OVERLAY.replace("source:", "form:"), "envs/tiny.yaml:5", "2 errors", ""),
        (DERIVED + OVERLAY.replace("host:", "hots:"), "envs/tiny.yaml:5", "source.hots", "did you mean host"),
    ],
)
def test_what_is_wrong_with_a_derived_one(tmp_path: Path, text: str, where: str, what: str, fix: str) -> None:
    error = refused(tmp_path, text)
    assert what in error.what, (error.what, error.evidence)
    assert error.where == where
    assert fix in error.fix


def test_an_unknown_environment_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(FleetError) as caught:
        load_spec(tmp_path, "tinny")
    assert "did you mean tiny?" in caught.value.fix


def test_the_key_is_of_what_is_resolved_alone(tmp_path: Path) -> None:
    one = load_spec(write(tmp_path, GOOD), "tiny").resolution_key()
    assert load_spec(write(tmp_path, GOOD + "imports: [alpha]\n"), "tiny").resolution_key() == one
    assert load_spec(write(tmp_path, GOOD + "indexes: {x: https://x}\n"), "tiny").resolution_key() != one
    assert load_spec(write(tmp_path, GOOD.replace("1.0", "1.1")), "tiny").resolution_key() != one


@pytest.mark.parametrize(
    ("python", "fits", "others"),
    [("3.11", ["3.11.0", "3.11.9"], ["3.12.0", "3.1.1"]), (">=3.10,<3.13", ["3.12.9"], ["3.9.1", "3.13.0"])],
)
def test_python_ranges(python: str, fits: list[str], others: list[str]) -> None:
    for version in fits:
        HostPlatform(version, "x86_64", "2.36").require_python(python_range(python), "x")
    for version in others:
        with pytest.raises(FleetError):
            HostPlatform(version, "x86_64", "2.36").require_python(python_range(python), "x")


def test_platform_tags_reach_down_from_the_hosts_glibc() -> None:
    tags = HostPlatform("3.11.2", "x86_64", "2.28").wheel_platforms
    assert (tags[0], "manylinux_2_29_x86_64" in tags) == ("manylinux_2_28_x86_64", False)
    assert {"manylinux_2_17_x86_64", "manylinux_2_5_x86_64", "manylinux2014_x86_64"} <= set(tags)
    assert "manylinux_2_5_aarch64" not in HostPlatform("3.11.2", "aarch64", "2.28").wheel_platforms


def test_a_host_without_glibc_is_refused() -> None:
    facts = {"hostname": "alpine", "python": {"version": "3.12.1"}, "arch": "x86_64", "glibc": None}
    with pytest.raises(FleetError) as caught:
        HostPlatform.from_facts(facts)
    assert caught.value.exit == Exit.PREFLIGHT
