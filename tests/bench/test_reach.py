"""What a server tells of its model: its name is looked for, and nothing longer than its context is asked of it."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.bench.points import plan_bench
from fleetctl.bench.reach import Way, reach
from fleetctl.bench.record import Point, PointEnd, Record
from fleetctl.bench.session import Session
from fleetctl.errors import Exit, FleetError
from tests.bench.test_points import PROMPTS, host, suite


@pytest.mark.parametrize(
    ("entry", "context"),
    [
        ({}, None),
        ({"max_model_len": 4096}, 4096),
        ({"max_model_len": None}, None),
        ({"max_model_len": "x"}, None),
    ],
)
def test_the_context_is_what_the_server_tells(entry: dict[str, Any], context: int | None) -> None:
    class Models(BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": "other", "max_model_len": 1}, {"id": "m", **entry}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    here = host(ssh={"hostname": "127.0.0.1"})
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with reach(here, server.server_port, "m") as way:
            assert (way.via, way.context) == ("direct", context)
        server.shutdown()


@pytest.mark.parametrize(("context", "asked"), [(None, True), (528, True), (527, False)])
def test_a_point_beyond_the_context_is_left_out_before_anything_is_asked(
    context: int | None, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked(Exception):
        pass

    def wait_idle(self: Session, slot: str) -> None:
        raise Asked

    def put(self: Session, service: str, *of: object) -> Any:
        self._there["native"] = ((), placed, Way("direct", "http://there", context=context))
        return placed

    placed: Any = SimpleNamespace()
    monkeypatch.setattr(Session, "put", put)
    monkeypatch.setattr(Session, "wait_idle", wait_idle)
    monkeypatch.setattr("fleetctl.bench.session.point", lambda planned, *of: planned)
    long = suite(context_tokens=[512], max_tokens=16)
    (planned,) = plan_bench(host(), long, ["ddtree"], len(PROMPTS)).points
    records: list[Record] = []
    fleet: Any = None
    session = Session(fleet, host(), lambda event: None, records.append)
    with pytest.raises(Asked if asked else FleetError) as caught:
        session.measure(planned, long, PROMPTS, [1])
    if isinstance(caught.value, FleetError):
        assert caught.value.exit == Exit.PREFLIGHT and "more than the 527 that ddtree takes" in str(
            caught.value
        )
        session.end(planned, long, "failed", str(caught.value))
        left_out, end = records
        assert isinstance(left_out, Point) and isinstance(end, PointEnd)
        assert (left_out.digest, end.outcome, "527" in end.why) == ("", "failed", True)
