"""Each folder of ``cases/`` is an inventory; ``expected.txt`` has its errors, a line each, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import find_root, load_fleet

CASES = Path(__file__).parent / "cases"
REPOSITORY = Path(__file__).parents[2]


def errors(root: Path, inventory: str = ".") -> list[str]:
    """The errors of an inventory as the operator sees them."""
    try:
        load_fleet(root, inventory)
    except FleetError as error:
        assert error.exit == Exit.INPUT
        assert error.where
        return error.evidence or [f"{error}; {error.fix}" if error.fix else str(error)]
    return []


@pytest.mark.parametrize("case", sorted(CASES.iterdir()), ids=lambda path: path.name)
def test_every_error_is_named_with_file_line_and_remedy(case: Path) -> None:
    assert errors(case) == (case / "expected.txt").read_text().splitlines()


@pytest.mark.parametrize("inventory", ["inventories", "inventories/lab"])
def test_the_inventories_of_the_repository_are_right(inventory: str) -> None:
    fleet = load_fleet(REPOSITORY, inventory)
    assert list(fleet.hosts) == ["ct129", "ct200"]


def test_defaults_are_filled_in_from_the_service_and_its_engine() -> None:
    host = load_fleet(CASES / "good", ".").hosts["alpha"]
    plain = host.services["plain"]
    assert plain.name == "plain"
    assert (plain.unit, plain.model_id, plain.template) == (
        "fleetctl-plain.service",
        "target",
        "sglang.service.j2",
    )
    assert host.slots["native"].name == "native"
    assert host.ssh.hostname is None and host.ssh.user is None, "left to ~/.ssh/config"


def test_scalars_mean_what_they_say() -> None:
    args = load_fleet(CASES / "yaml-1.2-words", ".").hosts["alpha"].services["dflash"].args
    assert args["grammar-backend"] == "off"
    assert args["lr"] == 1e-5
    assert args["id"] == 10
    assert args["at"] == "12:30"
    assert args["day"] == "2026-11-29"


def test_mappings_are_taken_over_by_merge_keys() -> None:
    services = load_fleet(CASES / "merged", ".").hosts["alpha"].services
    plain = {"attention-backend": "triton", "page-size": 1, "random-seed": 0}
    graphs = {**plain, "page-size": 4, "disable-cuda-graph": True}
    assert [services[name].args for name in ("plain", "dflash", "deeper")] == [
        plain,
        graphs,
        {**graphs, "random-seed": 7},
    ]
    assert services["dflash"].env == {"TWO": "own", "ONE": "first"}


def test_a_key_is_found_at_its_line() -> None:
    fleet = load_fleet(CASES / "good", ".")
    lines = (CASES / "good" / "alpha.yaml").read_text().splitlines()
    where = fleet.where("alpha", "services", "dflash", "drafter")
    assert where == f"alpha.yaml:{lines.index('    drafter: draft') + 1}"
    nearest = fleet.where("alpha", "services", "dflash", "template")
    assert nearest == f"alpha.yaml:{lines.index('  dflash:') + 1}", (
        "a key that is left out: the one around it"
    )


def test_the_fleet_folder_is_the_nearest_one_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETCTL_FLEET", raising=False)
    (tmp_path / "inventories").mkdir()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert find_root() == tmp_path
    monkeypatch.setenv("FLEETCTL_FLEET", str(CASES))
    assert find_root() == CASES, "the variable wins over the working directory"
    assert find_root(deep) == deep, "and what is named wins over both"


def test_outside_of_a_fleet_folder_the_checkout_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEETCTL_FLEET", raising=False)
    monkeypatch.chdir(tmp_path)
    assert find_root() == REPOSITORY


def test_the_variable_names_the_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_INVENTORY", "inventories/lab")
    assert load_fleet(REPOSITORY).hosts["ct200"].ssh.hostname == "198.18.0.11"
    monkeypatch.delenv("FLEETCTL_INVENTORY")
    assert load_fleet(REPOSITORY).hosts["ct200"].ssh.hostname is None


def test_a_folder_that_is_not_there_or_empty_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for inventory, what in (
        ("nowhere", "no such inventory folder"),
        ("empty", "the inventory describes no host"),
    ):
        with pytest.raises(FleetError) as caught:
            load_fleet(tmp_path, inventory)
        assert caught.value.what == what
        assert caught.value.where == str(tmp_path / inventory)
        assert "--inventory" in caught.value.fix
    with pytest.raises(FleetError, match="no such fleet folder"):
        load_fleet(tmp_path / "nowhere")
