"""What nvidia-smi's words are taken for: whole rows, dead cards, fields it does not tell, other languages, noise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.agent.host import cards, smi
from fleetctl.lab import nvidia_smi

OK = {
    "index": "1",
    "name": "NVIDIA Made-up 9000",
    "uuid": "GPU-1",
    "driver_version": "580.95.05",
    "memory.total": "97887",
    "memory.used": "12",
    "memory.free": "97238",
    "compute_cap": "12.0",
    "pci.bus_id": "00000000:21:00.0",
    "ecc.errors.uncorrected.volatile.total": "3",
    "retired_pages.double_bit.count": "[N/A]",
    "remapped_rows.uncorrectable": "0",
    "remapped_rows.failure": "No",
    "temperature.gpu": "41",
    "pstate": "P2",
    "persistence_mode": "Enabled",
    "mig.mode.current": "Disabled",
    "power.draw": "78.06",
}
MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tSYS\tPHB\t0-15\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\tSYS\t0-15\t0\t\tN/A\n"
    "NIC0\tSYS\tSYS\t X \tSYS\t\t\t\t\n"
    "GPU2\tPHB\tSYS\tSYS\t X \t16-31\t1\t\tN/A\n"
    "\nLegend:\n\n  X    = Self\n"
)
PEERS = " \t\x1b[4mGPU0\tGPU1\t\x1b[0m\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n\nLegend:\n"

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=200)


def line(row: dict[str, str]) -> str:
    return ", ".join(row[name] for name in cards.FIELDS)


def gpus_of(text: str) -> list[dict[str, object]]:
    return cards.read_gpus(*smi.read_csv(text, cards.FIELDS))


def test_a_healthy_card() -> None:
    (gpu,) = gpus_of(line(OK))
    assert gpu == {
        "index": 1,
        "name": "NVIDIA Made-up 9000",
        "uuid": "GPU-1",
        "driver_version": "580.95.05",
        "memory_total_mib": 97887,
        "memory_used_mib": 12,
        "memory_free_mib": 97238,
        "compute_cap": "12.0",
        "bus_id": "00000000:21:00.0",
        "ecc_uncorrected": 3,
        "retired_pages": None,
        "remapped_rows": 0,
        "remap_failed": False,
        "temperature": 41,
        "power_w": 78.06,
        "pstate": "P2",
        "persistence": True,
        "mig": "Disabled",
        "state": "ok",
        "said": "",
    }


@pytest.mark.parametrize(
    "absent", ["[N/A]", "N/A", "[Not Supported]", "[Requested functionality has been deprecated]", ""]
)
def test_what_a_card_does_not_tell_is_null_and_no_fault(absent: str) -> None:
    row = {
        **OK,
        "ecc.errors.uncorrected.volatile.total": absent,
        "power.draw": absent,
        "temperature.gpu": absent,
    }
    (gpu,) = gpus_of(line(row) + "\n")
    assert (gpu["ecc_uncorrected"], gpu["power_w"], gpu["temperature"], gpu["state"]) == (
        None,
        None,
        None,
        "ok",
    )


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("Unknown Error", "error"),
        ("GPU is lost.  Reboot the system to recover this GPU", "lost"),
        ("Le GPU ne répond pas", "error"),
    ],
)
def test_a_dead_card_among_living_ones(words: str, state: str) -> None:
    said = f"Unable to determine the device handle for GPU0000:21:00.0: {words}"
    dead = ", ".join("[Unknown Error]" for _ in cards.FIELDS)
    text = "\n".join([line({**OK, "index": "0"}), said, dead, line({**OK, "index": "2"})])
    gpus = gpus_of(text)
    assert [gpu["index"] for gpu in gpus] == [0, 1, 2]
    assert [gpu["state"] for gpu in gpus] == ["ok", state, "ok"]
    assert (gpus[1]["said"], gpus[1]["bus_id"], gpus[1]["uuid"]) == (said, "00000000:21:00.0", None)


def test_a_card_that_only_a_line_names() -> None:
    said = "Unable to determine the device handle for GPU 0000:C1:00.0: GPU is lost."
    (gpu,) = gpus_of(said)
    assert (gpu["state"], gpu["bus_id"]) == ("lost", "00000000:C1:00.0")


def test_another_language_and_decimal_commas() -> None:
    row = {**OK, "persistence_mode": "Aktiviert", "mig.mode.current": "Deaktiviert", "power.draw": "78,06"}
    (gpu,) = gpus_of(line(row))
    assert (gpu["persistence"], gpu["mig"], gpu["power_w"], gpu["state"]) == (
        None,
        "Deaktiviert",
        78.06,
        "ok",
    )


def test_programs_with_commas_in_their_names() -> None:
    rows, _ = smi.read_csv("GPU-1, 42, 512, python, with, commas\nGPU-9, 43, [N/A], x", cards.APP_FIELDS)
    apps = cards.read_apps(rows, gpus_of(line(OK)), lambda pid: "a.service" if pid == 42 else None)
    assert apps == [
        {"pid": 42, "name": "python, with, commas", "used_mib": 512, "gpu": 1, "unit": "a.service"},
        {"pid": 43, "name": "x", "used_mib": None, "gpu": None, "unit": None},
    ]


def test_matrices_with_colours_and_network_cards() -> None:
    assert smi.read_matrix(MATRIX) == {"0-1": "NV18", "0-2": "PHB", "1-2": "SYS"}
    assert smi.read_matrix(PEERS) == {"0-1": "CNS"}
    assert smi.read_matrix("Invalid combination of input arguments.\n") == {}


@given(texts)
def test_no_text_breaks_a_reader(text: str) -> None:
    rows, said = smi.read_csv(text, cards.FIELDS)
    gpus = cards.read_gpus(rows, said)
    assert len(gpus) <= len(rows) + len(said)
    assert all(gpu["state"] in ("ok", "lost", "error") for gpu in gpus)
    cards.read_apps(*smi.read_csv(text, cards.APP_FIELDS)[:1], gpus, lambda pid: None)
    smi.read_matrix(text)
    assert smi.whole(text) is None or isinstance(smi.whole(text), int)


@given(
    st.lists(
        st.sampled_from(["[N/A]", "[Unknown Error]", "7", "GPU-1", "nan", "1e999", "٣"]),
        min_size=18,
        max_size=18,
    )
)
def test_no_row_breaks_the_reader(cells: list[str]) -> None:
    gpus = cards.read_gpus(*smi.read_csv(", ".join(cells), cards.FIELDS))
    assert len(gpus) == 1


@pytest.mark.parametrize(
    ("version", "cuda"),
    [
        ("580.159.04", "13.0"),
        ("570.86.15", "12.8"),
        ("571.2", "12.8"),
        ("400.1", None),
        ("x", None),
        (None, None),
    ],
)
def test_the_drivers_branch_tells_its_cuda(version: str | None, cuda: str | None) -> None:
    assert cards.branch_cuda(version) == cuda


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for an nvidia-smi of the test's own, first on the PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "nvidia-smi"


def test_a_field_that_the_driver_does_not_know_is_asked_without(tool: Path) -> None:
    tool.write_text(
        "#!/bin/sh\ncase $1 in *ecc*) echo 'Field \"ecc.x\" is not a valid field to query.'; exit 2;; esac\n"
        "echo '0, A'\n"
    )
    tool.chmod(0o755)
    answer = smi.ask("--query-gpu", ["index", "ecc.x", "name"], 60)
    assert (answer.rows, answer.error, answer.unknown) == ([{"index": "0", "name": "A"}], None, ["ecc.x"])


def test_a_tool_that_hangs_or_lies_costs_its_time_and_no_more(tool: Path) -> None:
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    found = cards.look(0.3)
    assert (found["gpus"], "within 0.3 s" in found["error"]) == ([], True)
    tool.write_text("\x7fELF not really")
    assert cards.look(60)["error"]


def test_what_only_the_header_tells(tool: Path) -> None:
    tool.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo bad option; exit 2; }\necho "| CUDA Version: 12.4 |"\n'
    )
    tool.chmod(0o755)
    assert cards.supported_cuda(60) == "12.4"


def test_the_labs_tool_knows_every_field_that_is_asked() -> None:
    assert set(cards.FIELDS) <= set(nvidia_smi.GPU_FIELDS)
    assert set(cards.APP_FIELDS) <= {*nvidia_smi.APP_FIELDS}


def test_the_bus_and_its_access_control(tmp_path: Path) -> None:
    bridge = tmp_path / "devices/pci0000:00/0000:00:01.0"
    card = bridge / "0000:01:00.0"
    card.mkdir(parents=True)
    capability = (0x000D | 1 << 16).to_bytes(4, "little") + (0).to_bytes(2, "little")
    for place, kind in ((bridge, "0x060400"), (card, "0x030200")):
        (place / "class").write_text(kind + "\n")
        (place / "vendor").write_text("0x10de\n" if place is card else "0x8086\n")
    bus = tmp_path / "bus"
    bus.mkdir()
    for place in (bridge, card):
        (bus / place.name).symlink_to(place)
    (bridge / "config").write_bytes(bytes(64))
    assert (cards.on_bus(bus), cards.acs(bus)) == (["0000:01:00.0"], None)
    for control, redirects in ((0x001D, True), (0x0001, False)):
        (bridge / "config").write_bytes(bytes(256) + capability + control.to_bytes(2, "little"))
        assert cards.acs(bus) is redirects
    assert cards.on_bus(tmp_path / "none") == []


@given(st.binary(max_size=600))
def test_no_configuration_space_breaks_the_walk(config: bytes) -> None:
    found = cards.acs_control(config)
    assert found is None or 0 <= found <= 0xFFFF


def test_the_drivers_library_by_its_files_name(tmp_path: Path) -> None:
    assert cards.library_version(str(tmp_path)) is None
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.580.95.05").write_bytes(b"")
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.95.05")
    assert cards.library_version(str(tmp_path)) == "580.95.05"
