"""The live table of hosts: what matters most on as many lines as there are."""

from __future__ import annotations

from rich.console import Console

from fleetctl.cli.fleet_table import FleetTable


def shown(table: FleetTable, room: int) -> list[str]:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(table.view(room))
    return console.export_text().splitlines()


def fleet(host: str, state: str, text: str = "") -> dict[str, str]:
    return {"host": host, "step": "fleet", "state": state, "text": text}


def test_failed_and_working_hosts_come_first_and_the_rest_is_counted() -> None:
    table = FleetTable([f"h{number:03}" for number in range(100)])
    for number in range(40):
        table.take(fleet(f"h{number:03}", "begin", "connects"))
        if number < 30:
            table.take(fleet(f"h{number:03}", "ok", "done"))
    table.take({"host": "h035", "step": "health", "state": "wait", "text": "answers 503", "left_s": 112.4})
    table.take(fleet("h034", "fail", "the host refuses \x1b[31mconnections"))
    table.take({"step": "wave", "state": "info", "text": "2 of 3"})
    lines = shown(table, 16)
    assert len(lines) <= 16
    assert "h034" in lines[1] and "failed" in lines[1] and "the host refuses connections" in lines[1]
    assert any("h035" in line and "health: answers 503 (112 s left)" in line for line in lines)
    assert "88 more · 1 failed, 9 at work, 30 done, 60 waits · wave: 2 of 3" in lines[-1]
    assert "h099" in "\n".join(shown(table, 200))


def test_a_long_text_takes_no_room_from_the_others_and_a_watch_ends() -> None:
    table = FleetTable(["ct200", "ct129"])
    table.take(fleet("ct200", "begin", "connects"))
    table.take(fleet("ct200", "ok", "done"))
    table.take({"host": "ct200", "step": "watch", "state": "wait", "text": "dflash ready", "left_s": 3.0})
    table.take(fleet("ct129", "begin"))
    table.take(fleet("ct129", "fail", "a very long reason " * 20))
    lines = shown(table, 20)
    assert lines[1].startswith("ct129  failed") and len(lines[1]) <= 100
    assert "watch: dflash ready (3 s left)" in lines[2]
    table.take({"step": "wave", "state": "info", "text": "2 of 2"})
    assert lines[2].startswith("ct200  done") and shown(table, 20)[2].rstrip().endswith("done")


def test_a_host_without_end_has_a_clock_and_one_with_an_end_keeps_its_time() -> None:
    table = FleetTable(["a", "b"])
    table.take(fleet("a", "begin", "connects"))
    table.take(fleet("a", "ok", "nothing to do"))
    table.take(fleet("a", "fail", "gone bad"))
    first = [line for line in shown(table, 20) if line.startswith("a ")]
    assert "failed" in first[0] and "gone bad" in first[0]
    table.rows["a"].began = 100.0
    table.rows["a"].ended = 101.5
    assert "1.5 s" in next(line for line in shown(table, 20) if line.startswith("a "))
    table.take({"host": "unknown", "step": "fleet", "state": "ok", "text": "of no row"})
