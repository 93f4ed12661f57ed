"""Hash many files at once, in children of this process: one a core, each given the next batch when it is free.

A child reads one JSON line for each batch, ``[[path, algorithm], …]``, and answers it by one,
``[[hex digest or null, bytes, mtime in ns, error], …]``. It ends when its standard input does, so with the agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from fleetctl.agent.files import open_regular

CHUNK = 1 << 20
BATCH_COST = 8 << 20
FILE_COST = 32 << 10
ALONE_COST = 4 << 20
MOST_CHILDREN = 8
CHILD = (
    "import sys; sys.path.insert(0, sys.argv[1]); from fleetctl.agent.capture.reader import child; child()"
)


class Job(NamedTuple):
    """A file to be hashed: where it is, by what, and its bytes when it was looked at."""

    path: str
    algorithm: str
    size: int


class Answer(NamedTuple):
    """``digest`` in hex, None where ``error`` says why; ``size`` and ``mtime_ns`` when it had been read."""

    digest: Optional[str]
    size: int
    mtime_ns: int
    error: str


def read_all(jobs: Sequence[Job], on_bytes: Callable[[int, int], None]) -> List[Answer]:
    """The answer to each job, in order. ``on_bytes`` is told (bytes done, bytes in all), about twice a second."""
    total = sum(job.size for job in jobs)
    if sum(job.size + FILE_COST for job in jobs) <= ALONE_COST:
        return [read_one(job.path, job.algorithm) for job in jobs]
    return _Pool(jobs).run(lambda done: on_bytes(done, total))


def read_one(path: str, algorithm: str) -> Answer:
    """Hash one file. What is no regular file (any more) is never waited for."""
    import hashlib

    try:
        fd = open_regular(path)
    except OSError as error:
        return Answer(None, -1, -1, error.strerror or str(error))
    try:
        before = os.fstat(fd)
        digest = hashlib.new(algorithm)
        left = before.st_size
        while left > 0:
            chunk = os.read(fd, min(CHUNK, left))
            if not chunk:
                break
            digest.update(chunk)
            left -= len(chunk)
        after = os.fstat(fd)
        if left or after.st_size != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
            return Answer(None, after.st_size, after.st_mtime_ns, "it changed while it was read")
        return Answer(digest.hexdigest(), after.st_size, after.st_mtime_ns, "")
    except OSError as error:
        return Answer(None, -1, -1, error.strerror or str(error))
    finally:
        os.close(fd)


def child() -> None:
    """The child's loop: batches on standard input, answers on standard output."""
    for line in sys.stdin.buffer:
        answers = [read_one(path, algorithm) for path, algorithm in json.loads(line)]
        sys.stdout.buffer.write(json.dumps(answers).encode() + b"\n")
        sys.stdout.buffer.flush()


class _Pool:
    """Children, and one thread for each that hands it batches: the largest files first."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._answers: Dict[int, Answer] = {}
        self._batches: "queue.SimpleQueue[List[int]]" = queue.SimpleQueue()
        self._done = 0
        for batch in _batches(jobs):
            self._batches.put(batch)

    def run(self, on_done: Callable[[int], None]) -> List[Answer]:
        count = min(MOST_CHILDREN, len(os.sched_getaffinity(0)), self._batches.qsize())
        threads = [threading.Thread(target=self._feed, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
                if thread.is_alive():
                    on_done(self._done)
        return [self._answers[index] for index in range(len(self._jobs))]

    def _feed(self) -> None:
        started: Optional["subprocess.Popen[bytes]"] = None
        try:
            while True:
                try:
                    batch = self._batches.get_nowait()
                except queue.Empty:
                    return
                if started is None or started.poll() is not None:
                    started = start_child(CHILD)
                answers = _ask(started, [[self._jobs[i].path, self._jobs[i].algorithm] for i in batch])
                if answers is None:
                    answers = [Answer(None, -1, -1, "the process that read it was killed")] * len(batch)
                self._answers.update(zip(batch, answers))
                self._done += sum(self._jobs[index].size for index in batch)
        finally:
            if started is not None:
                end_child(started)


def start_child(code: str) -> "subprocess.Popen[bytes]":
    """This Python with ``code``, which finds the folder or archive of these sources as its first argument."""
    sources = str(Path(__file__).parents[3])
    argv = [sys.executable, "-I", "-S", "-c", code, sources]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def end_child(started: "subprocess.Popen[bytes]") -> None:
    """Close the child's input, which ends it, and wait for that."""
    for pipe in (started.stdin, started.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        started.wait(5)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()


def _ask(started: "subprocess.Popen[bytes]", batch: List[List[str]]) -> Optional[List[Answer]]:
    """The child's answers; None when it died."""
    assert started.stdin is not None and started.stdout is not None
    try:
        started.stdin.write(json.dumps(batch).encode() + b"\n")
        started.stdin.flush()
        line = started.stdout.readline()
    except OSError:
        return None
    return [Answer(*answer) for answer in json.loads(line)] if line.endswith(b"\n") else None


def _batches(jobs: Sequence[Job]) -> List[List[int]]:
    """Indices of jobs in batches of about the same work, the largest files first and alone."""
    found: List[List[int]] = []
    cost = BATCH_COST
    for index in sorted(range(len(jobs)), key=lambda index: -jobs[index].size):
        if cost >= BATCH_COST:
            found.append([])
            cost = 0
        found[-1].append(index)
        cost += jobs[index].size + FILE_COST
    return found
