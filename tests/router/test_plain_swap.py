"""A plain swap, without a router, under load: whatever the old service accepted it answers, within the drain time."""

from __future__ import annotations

import pytest

from tests.router.conftest import Site
from tests.router.load import Load

pytestmark = pytest.mark.lab


def test_no_accepted_request_is_cut(site: Site) -> None:
    # Under steady load the drain never sees a quiet moment, and a request takes longer than a stop may.
    deadlines = {"drain": 3, "stop": 1, "free": 5, "ready": 30, "generate": 10}
    site.service("one", more={"deadlines": deadlines}, slow=2)
    site.service("two", more={"deadlines": deadlines})
    site.run("deploy", "ct200", "--service", "one")
    started = site.lab.run("ct200", f"systemctl show -P InvocationID {site.slot}-one.service").stdout.strip()
    load = Load(site.address(), site.port, clients=12, keep=False).start()
    said = site.run("swap", "one", "two", "--host", "ct200")
    assert "after 3 s: going on" in said, "the load was there until the end"
    load.more(24)
    load.stop()
    journal = site.lab.run("ct200", f"journalctl -q -o cat _SYSTEMD_INVOCATION_ID={started}").stdout
    (counted,) = [line.split() for line in journal.splitlines() if line.startswith("accepted ")]
    accepted, answered = int(counted[1]), int(counted[3])
    assert accepted == answered >= 12
    assert load.answers["one"] == answered, "every answer reached its client"
    assert load.refused > 0, "between the two there is nobody: only a router spares clients that"
