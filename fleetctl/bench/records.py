"""Records of a benchmark: one JSON object a line, written as it happens, and the reader of such files.

Times are seconds, of a clock that never jumps unless a field says otherwise. docs/bench.md tells what each line means.
"""

from __future__ import annotations

import gc
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from fleetctl.bench.record import (
    SCHEMA,
    Accepted,
    End,
    Failure,
    HostFacts,
    Point,
    PointEnd,
    Record,
    Request,
    Run,
    Tree,
    encode,
)
from fleetctl.errors import Exit, FleetError

__all__ = [
    "FILE", "FOLDER", "SCHEMA", "Accepted", "End", "Failure", "Glance", "HostFacts", "Point", "PointEnd", "Record",
    "Recording", "Request", "Run", "Tree", "Writer", "encode", "find", "glance", "load", "new_id", "read_run",
    "recordings", "utc_now",
]  # fmt: skip

FOLDER = ".fleetctl/bench"
FILE = "records.jsonl"
DISTURBED = "the service was changed or restarted in its round"


@dataclass(frozen=True)
class Recording:
    """A whole file. ``ends`` by the point's id; ``problems``: what was left out while reading, in words.

    A file that a kill left without its last line has an ``end`` of outcome ``interrupted``.
    """

    path: Path
    run: Run
    hosts: list[HostFacts]
    points: list[Point]
    requests: list[Request]
    ends: dict[str, PointEnd]
    end: End
    problems: list[str]

    def point(self, identity: str) -> Point:
        """The point with this id."""
        return next(point for point in self.points if point.id == identity)

    def of(self, point: str) -> list[Request]:
        """The requests of a point, warm-up and failed ones included."""
        return [request for request in self.requests if request.point == point]


class Writer:
    """Appends records to ``<root>/.fleetctl/bench/<run id>/records.jsonl``, each whole before the next."""

    def __init__(self, root: Path, run: Run) -> None:
        self.path = root / FOLDER / run.id / FILE
        self._is_lost = False
        try:
            self.path.parent.mkdir(parents=True)
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise FleetError(
                f"the records cannot be written: {error.strerror}",
                str(self.path),
                "correct the folder's rights, or name another fleet folder: --fleet",
            ) from None
        try:
            self.write(run)
        except FleetError:
            self.close()
            shutil.rmtree(self.path.parent, ignore_errors=True)
            raise

    def write(self, record: Record) -> None:
        """One line, on its way to the disk when this returns; what the disk does not take leaves no part of a line.

        FleetError (exit 1) at the first one that it does not take. That ends the run, whose last words are then written
        where there is room for them.
        """
        whole = self._file.tell()
        try:
            self._append(encode(record) + b"\n")
        except OSError as error:
            with suppress(OSError):
                self._file.seek(whole)
                self._file.truncate()
            if self._is_lost:
                return
            self._is_lost = True
            raise FleetError(
                f"a record could not be written: {error.strerror}",
                str(self.path),
                "make room, and measure again; what was recorded before is whole",
                exit=Exit.OUTPUT_LOST,
            ) from None

    def _append(self, line: bytes) -> None:
        while line:
            line = line[self._file.write(line) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(path: Path) -> Recording:
    """Read a run's file, or the folder it is in.

    Raises FleetError (exit 2): no such file, no records, a schema of another version, a damaged line. A last half
    line, lines of unknown points or kinds, and another run behind the first are left out, and named in ``problems``.
    """
    path = path / FILE if path.is_dir() else path
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise FleetError(
            f"the records cannot be read: {error.strerror}", str(path), "fleetctl bench list shows the runs"
        ) from None
    problems: list[str] = []
    if lines[-1]:
        half = lines.pop()
        problems.append(f"line {len(lines) + 1} was cut after {len(half)} bytes, and is left out")
    run = read_run(path, lines[0] if lines else b"")
    with _no_collection():
        return _assemble(path, run, lines, problems)


@dataclass(frozen=True)
class Glance:
    """What a list of runs shows of a file; ``requests`` and ``failed`` without warm-up."""

    run: Run
    hosts: list[str]
    points: int
    requests: int
    failed: int
    outcome: str


def glance(path: Path) -> Glance:
    """A file's counts, without its timings and texts; a damaged line counts as none. FleetError as :func:`load`."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise FleetError(
            f"the records cannot be read: {error.strerror}", str(path), "correct their rights"
        ) from None
    run = read_run(path, lines[0])
    hosts: dict[str, None] = {}
    points: set[str] = set()
    requests = failed = 0
    good: Counter[tuple[str, int]] = Counter()
    outcome = "interrupted"
    for line in lines[1:]:
        try:
            brief = _BRIEF.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        match brief.kind:
            case "host":
                hosts[brief.host] = None
            case "point":
                points.add(brief.id)
            case "request" if not brief.warmup:
                requests += 1
                failed += brief.error is not None
                good[brief.point, brief.round] += brief.error is None
            case "point-end":
                failed += sum(good[brief.point, number] for number in set(brief.disturbed))
            case "end":
                outcome = brief.outcome
            case "run":
                break
    return Glance(run, list(hosts), len(points), requests, failed, outcome)


def read_run(path: Path, line: bytes) -> Run:
    """The run that a file's first line describes; FleetError (exit 2) where it is none of this schema."""
    where = f"{path}:1"
    try:
        head = _HEAD.decode(line)
    except msgspec.MsgspecError:
        raise FleetError(
            "no records of a benchmark: the first line describes no run",
            where,
            "name a run of `fleetctl bench list`, or its records.jsonl",
        ) from None
    if head.schema is None:
        fix = f"name records that a fleetctl wrote; this one reads schema {SCHEMA}"
        raise FleetError("records that name no schema", where, fix)
    if head.schema > SCHEMA:
        what = f"records of schema {head.schema}, written by a newer fleetctl ({head.fleetctl or 'unknown'})"
        raise FleetError(what, where, f"update fleetctl; this one reads schema {SCHEMA}")
    if head.schema < SCHEMA:
        what = f"records of schema {head.schema}, older than any that this fleetctl reads ({SCHEMA})"
        raise FleetError(what, where, "measure again; numbers of another schema are not compared")
    run = _decode(path, 1, line)
    assert isinstance(run, Run)
    return run


def recordings(root: Path) -> list[Path]:
    """The runs' files below the fleet folder ``root``, newest first."""
    return sorted((root / FOLDER).glob(f"*/{FILE}"), key=lambda path: path.parent.name, reverse=True)


def find(root: Path, word: str) -> Path:
    """The file of the run that ``word`` means: a path, ``last``, an id, or a part of just one id."""
    given = Path(word)
    if given.exists():
        return given / FILE if given.is_dir() else given
    known = recordings(root)
    names = [path.parent.name for path in known]
    if word == "last" and known:
        return known[0]
    fitting = [path for path in known if path.parent.name == word] or [
        path for path in known if word in path.parent.name
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = ", ".join(path.parent.name for path in fitting[:10])
        raise FleetError(f"which run? {word!r} is part of {len(fitting)}: {listed}", fix="name one of them")
    newest = f"the newest: {', '.join(names[:5])}" if names else "no benchmark was run in this fleet folder"
    raise FleetError(f"no run {word!r}", str(root / FOLDER), newest)


def new_id(suite: str, now: datetime | None = None) -> str:
    """An id that sorts by time: ``20261129T231500Z-five-prompts-ab12``."""
    return f"{now or datetime.now(UTC):%Y%m%dT%H%M%SZ}-{suite}-{secrets.token_hex(2)}"


def utc_now() -> str:
    """The time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of small objects, none of them garbage: looking for some doubles the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Head(msgspec.Struct):
    kind: Literal["run"]
    schema: int | None = None
    fleetctl: str = ""


class _Kind(msgspec.Struct):
    kind: str


class _Brief(msgspec.Struct):
    kind: str
    host: str = ""
    id: str = ""
    point: str = ""
    round: int = 0
    warmup: bool = False
    error: Any = None
    disturbed: list[int] = []
    outcome: str = ""


_HEAD = msgspec.json.Decoder(_Head)
_KIND = msgspec.json.Decoder(_Kind)
_BRIEF = msgspec.json.Decoder(_Brief)
_DECODERS: dict[str, msgspec.json.Decoder[Record]] = {
    kind.kind: msgspec.json.Decoder(kind) for kind in (Run, HostFacts, Point, Request, PointEnd, End)
}
_REQUEST = b'{"kind":"request",'


def _decode(path: Path, number: int, line: bytes) -> Record | None:
    """One line as its record; None of an unknown kind, FleetError where it is no record."""
    try:
        kind = "request" if line.startswith(_REQUEST) else _KIND.decode(line).kind
        return _DECODERS[kind].decode(line) if kind in _DECODERS else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FleetError(
            f"a damaged record: {error}",
            f"{path}:{number}",
            "take the line out to go on without it, or measure again",
        ) from None


def _assemble(path: Path, run: Run, lines: list[bytes], problems: list[str]) -> Recording:
    hosts: list[HostFacts] = []
    points: dict[str, Point] = {}
    requests: list[Request] = []
    ends: dict[str, PointEnd] = {}
    end = None
    for number, record in _records(path, lines, problems):
        match record:
            case Request() | PointEnd() if record.point not in points:
                problems.append(f"line {number} is of a point that no line describes: {record.point}")
            case Request():
                requests.append(record)
            case PointEnd():
                ends[record.point] = record
            case Point():
                _same_point(path, number, points.setdefault(record.id, record), record)
            case HostFacts():
                hosts.append(record)
            case End():
                end = record
            case Run():
                problems.append(f"line {number} begins another run: it and what follows are left out")
                break
    requests = [_disturbed(one, ends) for one in requests]
    killed = End("interrupted", "the run ended without a word: it was killed, or still goes on", "")
    return Recording(path, run, hosts, list(points.values()), requests, ends, end or killed, problems)


def _disturbed(request: Request, ends: dict[str, PointEnd]) -> Request:
    """A request as failed where its round was disturbed."""
    end = ends.get(request.point)
    if end is None or request.round not in end.disturbed or not request.counts:
        return request
    return replace(request, error=Failure("disturbed", None, DISTURBED))


def _records(path: Path, lines: list[bytes], problems: list[str]) -> Iterator[tuple[int, Record]]:
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        record = _decode(path, number, line)
        if record is None:
            problems.append(f"line {number} is of a kind that this fleetctl does not know")
        else:
            yield number, record


def _same_point(path: Path, number: int, first: Point, again: Point) -> None:
    if first.digest != again.digest:
        raise FleetError(
            f"the point {first.id} stands twice, with two digests: what it measured is not the same",
            f"{path}:{number}",
            "take one of them out with its requests; they are never averaged together",
        )
