"""Records made by hand."""

from __future__ import annotations

from typing import Any

from fleetctl.bench.record import End, Failure, HostFacts, Point, PointEnd, Record, Request, Run


def run(**fields: Any) -> Run:
    """A run of a suite of two prompts."""
    standard: dict[str, Any] = {
        "id": "20261129T231500Z-made-ab12", "started": "2026-11-29T23:15:00.000+00:00",
        "suite": {"suite": "made", "max_tokens": 16, "turns": 1}, "prompts_digest": "1" * 16,
        "command": ["fleetctl", "bench", "ct200"], "fleetctl": "0.1.0", "operator": "me", "seed": 1,
        "client": {"host": "here", "cpus": 2},
    }  # fmt: skip
    return Run(**{**standard, **fields})


def point(service: str = "ddtree", **fields: Any) -> Point:
    """A point of ct200."""
    standard: dict[str, Any] = {
        "id": f"ct200/native/{service}@c1", "host": "ct200", "slot": "native", "service": service, "mode": "tree",
        "engine": "standalone", "args": {"budget": 16}, "varied": {}, "environment": "2e3f037fe4df",
        "abi": "cp311-torch2.13-cpu-glibc2.36", "patches": [], "model": {"id": "smol", "digest": "426610c8a5b8"},
        "drafter": None, "concurrency": 1, "suite_part": "made", "digest": f"{service:0>64}", "unit_sha256": "ab",
        "started": "2026-11-29T23:15:01.000+00:00",
    }  # fmt: skip
    return Point(**{**standard, **fields})


def request(of: Point, prompt: str = "a", repeat: int = 1, speed: float = 20.0, **fields: Any) -> Request:
    """An answer of 16 tokens at ``speed`` tokens a second."""
    standard: dict[str, Any] = {
        "point": of.id, "prompt": prompt, "prompt_kind": "code", "repeat": repeat, "round": repeat, "warmup": False,
        "started_s": float(repeat), "ttft_s": 1 / speed, "end_s": 16 / speed,
        "events": [(number / speed, 1) for number in range(1, 17)], "tokens": 16, "tokens_from": "usage",
        "prompt_tokens": 9, "text": f"the answer to {prompt}", "finish": "length", "usage": None,
    }  # fmt: skip
    return Request(**{**standard, **fields})


def failed(of: Point, prompt: str = "a", repeat: int = 1) -> Request:
    """A request that the server refused."""
    return request(of, prompt, repeat, tokens=0, ttft_s=None, events=[], text="", finish=None,
                   error=Failure("http", 500, "HTTP 500: no"))  # fmt: skip


def whole(*records: Record) -> list[Record]:
    """Records with a first line and a last, each point with its end."""
    ends = [PointEnd(one.id, "done", visits=2) for one in records if isinstance(one, Point)]
    facts = HostFacts("ct200", {"hostname": "ct200", "cpus": 2})
    return [run(), facts, *records, *ends, End("done", "", "2026-11-29T23:16:00.000+00:00")]
