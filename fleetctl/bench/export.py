"""Records as a table, one row a request: CSV, or Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetctl.bench.record import Point, Request
from fleetctl.bench.records import Recording
from fleetctl.bench.summary import summarize_one
from fleetctl.errors import FleetError

COLUMNS: dict[str, type] = {
    "run": str, "point": str, "host": str, "slot": str, "service": str, "mode": str, "engine": str, "varied": str,
    "concurrency": int, "model": str, "model_digest": str, "drafter": str, "environment": str, "digest": str,
    "via": str, "prompt": str, "prompt_kind": str, "repeat": int, "round": int, "warmup": bool, "started_s": float,
    "ttft_s": float, "end_s": float, "tokens": int, "tokens_from": str, "tokens_per_second": float,
    "prompt_tokens": int, "verify_passes": int, "accepted_tokens": int, "accepted_length": float,
    "point_accepted_length": float, "finish": str, "error": str, "status": int, "error_what": str, "warnings": str,
    "by": str, "text": str, "events": str,
}  # fmt: skip
"""Names and types; ``varied``, ``warnings`` and ``events`` are JSON, what is not known is empty.

``point_accepted_length``: of the whole point, also where the server's answers do not tell it one by one.
"""


def rows(recording: Recording) -> Iterator[dict[str, Any]]:
    """One row a request, warm-up and failed ones too, with all of :data:`COLUMNS`."""
    points = {point.id: summarize_one(recording, point) for point in recording.points}
    for request in recording.requests:
        one = points[request.point]
        length = one.accepted.mean if one.accepted else None
        row = _row(one.point, request)
        yield {"run": recording.run.id, **row, "point_accepted_length": length}


def write_csv(recording: Recording, path: Path | None) -> str:
    """The rows as CSV, into ``path`` where one is given; returns the text."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(recording))
    if path is not None:
        _write(path, out.getvalue().encode())
    return out.getvalue()


def write_parquet(recording: Recording, path: Path) -> None:
    """The rows as Parquet; FleetError where pyarrow is not installed."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise FleetError(
            "Parquet needs pyarrow, which is not installed here",
            fix="pip install 'fleetctl[bench]', or --format csv",
        ) from None
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    table = arrow.Table.from_pylist(list(rows(recording)), schema=schema)
    out = io.BytesIO()
    parquet.write_table(table, out)
    _write(path, out.getvalue())


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise FleetError(f"cannot be written: {error.strerror}", str(path), "name another file: -o") from None


def _row(point: Point, request: Request) -> dict[str, Any]:
    accepted, error = request.accepted, request.error
    return {
        "point": point.id,
        "host": point.host,
        "slot": point.slot,
        "service": point.service,
        "mode": point.mode,
        "engine": point.engine,
        "varied": json.dumps(point.varied),
        "concurrency": point.concurrency,
        "model": point.model.get("id"),
        "model_digest": point.model.get("digest"),
        "drafter": (point.drafter or {}).get("id"),
        "environment": point.environment,
        "digest": point.digest,
        "via": point.via,
        "prompt": request.prompt,
        "prompt_kind": request.prompt_kind,
        "repeat": request.repeat,
        "round": request.round,
        "warmup": request.warmup,
        "started_s": request.started_s,
        "ttft_s": request.ttft_s,
        "end_s": request.end_s,
        "tokens": request.tokens,
        "tokens_from": request.tokens_from,
        "tokens_per_second": request.tokens / request.end_s if request.end_s > 0 else None,
        "prompt_tokens": request.prompt_tokens,
        "verify_passes": accepted.passes if accepted else None,
        "accepted_tokens": accepted.tokens if accepted else None,
        "accepted_length": accepted.length if accepted else None,
        "finish": request.finish,
        "error": error.kind if error else None,
        "status": error.status if error else None,
        "error_what": error.what if error else None,
        "warnings": json.dumps(request.warnings),
        "by": request.by,
        "text": request.text,
        "events": json.dumps(request.events),
    }
