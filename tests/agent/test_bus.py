"""What systemd says over its socket beside what systemctl prints of it, on a real host; and answers that are none."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.agent.units import bus
from fleetctl.agent.units.systemd import PROPERTIES
from fleetctl.transport.agent import Agent, open_agent
from tests.conftest import Lab
from tests.transport.sshd import SshSettings, TestHost

FAILED, LOOSE = "fleetctl-test-bus-failed.service", "fleetctl-test-bus@a-b.service"
UNITS = ["ssh.service", "systemd-journald.service", "no-such.service", FAILED, LOOSE]
LOOSE_UNIT = "[Service]\\nExecStart=/bin/sleep 6000\\nTimeoutStopSec=1h 2min 3s 4ms\\n"
PREPARE = f"""
printf '{LOOSE_UNIT}' > /run/systemd/system/fleetctl-test-bus@.service
systemd-run -q --unit={FAILED} false; systemctl daemon-reload; systemctl start {LOOSE}
mkdir -p /run/systemd/system/{LOOSE}.d && echo > /run/systemd/system/{LOOSE}.d/a.conf
until systemctl is-failed -q {FAILED}; do sleep 0.05; done
"""
TAKE_AWAY = (
    f"systemctl stop {LOOSE}; systemctl reset-failed {FAILED}; rm -r /run/systemd/system/fleetctl-test-bus*"
)
AWAY, BACK = "mv /run/systemd/private /run/systemd/away", "mv /run/systemd/away /run/systemd/private"


@pytest.mark.lab
def test_the_bus_and_systemctl_say_the_same(lab: Lab) -> None:
    ssh = SshSettings(lab.address("ct200"), "root", identity_file=lab.identity, known_hosts=lab.known_hosts)
    with open_agent(TestHost("ct200", ssh)) as agent:
        lab.run("ct200", PREPARE)
        try:
            by_bus = shown(agent)
            lab.run("ct200", AWAY)
            try:
                by_program = shown(agent)
            finally:
                lab.run("ct200", BACK)
        finally:
            lab.run("ct200", TAKE_AWAY + "; systemctl daemon-reload")
    assert by_bus == by_program
    assert by_bus[FAILED]["ActiveState"] == "failed" and by_bus[FAILED]["ExecMainStatus"] == 1
    assert (
        by_bus[LOOSE]["NeedDaemonReload"] == "yes" and by_bus[LOOSE]["TimeoutStopUSec"] == "1h 2min 3.004000s"
    )
    assert by_bus["no-such.service"]["LoadState"] == "not-found"
    assert set(by_bus["ssh.service"]) == {*PROPERTIES, "text"}


def shown(agent: Agent) -> dict[str, dict[str, Any]]:
    """The units as ``facts`` has them."""
    found: dict[str, dict[str, Any]] = agent.call("facts", units=UNITS, gpus=False)["units"]
    return found


def packed(values: dict[str, tuple[str, Any]]) -> bytes:
    """A body ``a{sv}`` as systemd sends it: ``{name: (type, value)}``."""
    body = b"\0" * 8
    for name, (kind, value) in values.items():
        body += b"\0" * (-len(body) % 8) + text(name) + bytes([len(kind)]) + kind.encode() + b"\0"
        body = put(body, kind, value)
    return struct.pack("<II", len(body) - 8, 0) + body[8:]


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data + b"\0"


def put(body: bytes, kind: str, value: Any) -> bytes:
    """``body`` with one more value behind it."""
    if kind[0] == "a":
        body += b"\0" * (-len(body) % 4)
        inner = body + b"\0" * 4
        inner += b"\0" * (-len(inner) % bus.ALIGNED[kind[1]])
        whole = inner
        for one in value:
            whole = put(whole, kind[1:], one)
        return body + struct.pack("<I", len(whole) - len(inner)) + whole[len(body) + 4 :]
    if kind[0] == "(":
        body += b"\0" * (-len(body) % 8)
        for inner_kind, one in zip(kind[1:-1], value, strict=True):
            body = put(body, inner_kind, one)
        return body
    if kind in "so":
        return body + b"\0" * (-len(body) % 4) + text(value)
    return body + b"\0" * (-len(body) % bus.SIZES[kind]) + struct.pack(f"<{bus.FIXED[kind]}", value)


VALUES = st.one_of(
    st.tuples(st.sampled_from("so"), st.text(max_size=9)),
    st.tuples(st.just("b"), st.booleans()),
    st.tuples(st.just("y"), st.integers(0, 255)),
    st.tuples(st.just("i"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("t"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("d"), st.floats(allow_nan=False)),
    st.tuples(st.just("as"), st.lists(st.text(max_size=5), max_size=3)),
    st.tuples(st.just("ay"), st.lists(st.integers(0, 255), max_size=5)),
    st.tuples(st.just("(uo)"), st.tuples(st.integers(0, 99), st.text(max_size=5)).map(list)),
    st.tuples(
        st.just("a(st)"),
        st.lists(st.tuples(st.text(max_size=5), st.integers(0, 2**64 - 1)).map(list), max_size=3),
    ),
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), VALUES, max_size=6), st.data())
def test_what_is_asked_for_is_read_and_the_rest_passed_over(
    values: dict[str, tuple[str, Any]], data: st.DataObject
) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(values)))) if values else set()
    found = bus._Reader(packed(values)).chosen(names)
    assert found == {name: value for name, (_, value) in values.items() if name in names}


@given(st.dictionaries(st.text(min_size=1, max_size=5), VALUES, max_size=4), st.data())
def test_a_damaged_answer_ends_in_a_word(values: dict[str, tuple[str, Any]], data: st.DataObject) -> None:
    body = bytearray(packed(values))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(*bus.MALFORMED):
        bus._Reader(bytes(body[: data.draw(st.integers(0, len(body)))])).chosen(set(values))


def test_where_no_systemd_listens_it_says_so() -> None:
    with pytest.raises(bus.Unavailable):
        bus.properties("ssh.service", PROPERTIES)
