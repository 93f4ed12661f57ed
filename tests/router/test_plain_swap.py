"""A plain swap, without a router, under load: whatever the old service accepted it answers, within the drain time."""

from __future__ import annotations

import pytest

from tests.router.conftest import Site
from tests.router.load import Load
from tests.transport.sshd import wait_for

pytestmark = pytest.mark.lab


def test_no_accepted_request_is_cut(site: Site) -> None:
    # Under steady load the drain never sees a quiet moment, and a request takes longer than a stop may.
    deadlines = {"drain": 12, "stop": 1, "free": 60, "ready": 120, "generate": 60}
    held, door = site.gate("held"), site.gate("door")
    site.service("one", more={"deadlines": deadlines}, slow=2, held=held.path)
    site.service("two", more={"deadlines": deadlines}, door=door.path)
    site.run("deploy", "ct200", "--service", "one")
    started = site.lab.run("ct200", f"systemctl show -P InvocationID {site.slot}-one.service").stdout.strip()
    load = Load(site.address(), site.port, clients=12, keep=False).start()
    longest = Load(site.address(), site.port, clients=1, keep=False, prompt="held")
    longest.begin()
    asked = f"curl -s 127.0.0.1:{site.port}/metrics"
    wait_for(lambda: "fleetctl_requests_running 13" in site.lab.run("ct200", asked).stdout, 120)
    swap = site.start("swap", "one", "two", "--host", "ct200")
    said = site.until(swap, "stop:")
    held.open()
    longest.stop()
    # Between the two there is nobody: only a router spares clients that.
    wait_for(lambda: load.refused > 0, 120)
    door.open()
    out, err = swap.communicate(timeout=240)
    assert swap.returncode == 0, out + err
    assert "after 12 s: going on" in said + err, "the load was there until the end"
    load.more(24)
    load.stop()
    journal = site.lab.run("ct200", f"journalctl -q -o cat _SYSTEMD_INVOCATION_ID={started}").stdout
    (counted,) = [line.split() for line in journal.splitlines() if line.startswith("accepted ")]
    accepted, answered = int(counted[1]), int(counted[3])
    assert accepted == answered >= 13
    assert load.answers["one"] + longest.answers["one"] == answered, "every answer reached its client"
