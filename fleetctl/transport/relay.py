"""Bulk from one host to another by rsync, through the controller: no key leaves it, no host reaches another.

rsync runs on the destination. Its "remote shell" is the agent's ``bridge``, which hands its bytes to the ssh
session that started it; here they go on to a second session, on the source, in which nothing but rsync's
sender for the wanted folder can run (``sender``). The heavy way, source to destination, is one pipe that both
ssh processes hold: no byte of it passes through Python.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from fleetctl.agent.environment import bridge
from fleetctl.errors import Exit, FleetError
from fleetctl.transport import broken
from fleetctl.transport.bulk import PARTIAL, SILENCE_S, Progress, parse_progress
from fleetctl.transport.sender import sender_options, sender_words
from fleetctl.transport.settings import Host, Settings, quick_cipher, resolve

REQUEST_LIMIT = 64 * 1024
CHUNK = 1 << 18
PIPE_BYTES = 1 << 20
LOCK_WAIT_S = 90
END_S = 5.0
HEADER = re.compile(rb"fleetctl-bridge (\d{1,3})\n")
RECEIVED = re.compile(r"^sent \d+ bytes +received (\d+) bytes")
BOOT = """\
import os,sys
def take(n):
 b=b""
 while len(b)<n:
  c=os.read(0,n-len(b))
  if not c:sys.exit(12)
  b+=c
 return b
s=take({source});g={{"__name__":"bridge"}};exec(compile(s,"bridge","exec"),g)
d,*o=map(os.fsdecode,take({words}).split(b"\\0"))
sys.exit(g["main"](d,{wait_s},o,{files}))
"""
START = """
p=/usr/bin/python3
[ -x $p ] || p=$(command -v python3) || {{ echo fleetctl-bridge no-python >&2; exit 127; }}
exec $p -I -S -c {boot}
"""

OnProgress = Callable[[Progress], None]
OnWait = Callable[[str, float], None]


def relay(
    source: Host,
    destination: Host,
    source_path: str,
    destination_path: str,
    *,
    files: Sequence[str] | None = None,
    references: Sequence[str] = (),
    compare: Literal["times", "content"] = "times",
    hard_links: bool = False,
    delete: bool = False,
    on_progress: OnProgress | None = None,
    on_wait: OnWait | None = None,
) -> int:
    """Make the folder ``destination_path`` hold what ``source_path`` of another host holds.

    Both are absolute paths of folders; their contents correspond, and the destination is made where it is
    missing. Returns the bytes that came over the link. What is there already is not sent again, nor what was
    there when an earlier call broke off.

    ``files``: only these, relative to ``source_path`` and inside it; folders without what is in them.
    ``references``: folders of the destination whose equal files are taken from there: hard-linked where times
    and rights are equal too, copied otherwise. ``compare``: files are equal by size and time (to the
    nanosecond), or by "content", which both hosts read then. ``hard_links`` keeps links among the source's
    files. ``delete`` takes away what the source has not; never with ``files``. ``on_wait`` is told what is
    waited for and the seconds left.

    :class:`FleetError`: exit 2 where the source's folder is missing, 3 where a host or its link fails (it says
    whose), 4 where another copy into the folder goes on, 5 where a host cannot do it (space, rights, no rsync).
    """
    for path in (destination_path, *references):
        if not path.startswith("/") or "\0" in path:
            raise FleetError(f"not an absolute path: {path!r}")
    for name in files or ():
        if not name or name.startswith("/") or "\0" in name or ".." in name.split("/"):
            raise FleetError(f"not a path inside the folder: {name!r}", where=f"{source.name}:{source_path}")
    with ThreadPoolExecutor(2) as pool:
        of_source, of_destination = pool.map(resolve, (source, destination))
    ends = broken.Ends(of_source, of_destination, source_path, destination_path)
    options = _options(files, references, compare, hard_links, delete)
    with _sessions(ends, *_boot(destination_path, options, files)) as sessions:
        outcome = _follow(sessions, on_progress, on_wait)
    if sessions.refusal:
        raise sessions.refusal
    if outcome.status or not outcome.whole:
        raise broken.failure(ends, outcome)
    return outcome.received


def _options(
    files: Sequence[str] | None, references: Sequence[str], compare: str, hard_links: bool, delete: bool
) -> list[str]:
    if delete and files is not None:
        raise ValueError("delete goes with a whole folder only")
    return [
        *("-a", "--no-owner", "--no-group", "--no-protect-args", "--modify-window=-1"),
        f"--partial-dir={PARTIAL}",
        *("--info=progress2,stats1", "--no-human-readable", "--outbuf=N", f"--timeout={SILENCE_S}"),
        *(f"--link-dest={path}" for path in references),
        *(["--checksum"] if compare == "content" else []),
        *(["--hard-links"] if hard_links else []),
        *(["--delete"] if delete else []),
    ]


def _boot(destination: str, options: list[str], files: Sequence[str] | None) -> tuple[str, bytes]:
    """The script that starts the bridge, and what it reads first: the bridge, its words, the files' names."""
    code = Path(bridge.__file__).read_bytes()
    words = b"\0".join(os.fsencode(word) for word in (destination, *options))
    names = b"".join(os.fsencode(name) + b"\0" for name in files or ())
    take = "None" if files is None else f"take({len(names)})"
    boot = BOOT.format(source=len(code), words=len(words), wait_s=LOCK_WAIT_S, files=take)
    return START.format(boot=shlex.quote(boot)), code + words + names


@dataclass
class _Sessions:
    """The two ssh processes, and why the request of the one was not passed to the other."""

    source: subprocess.Popen[bytes]
    destination: subprocess.Popen[bytes]
    source_words: IO[bytes]
    refusal: FleetError | None = None
    noise: list[str] = field(default_factory=list)

    def end(self) -> None:
        """End both."""
        for process in (self.destination, self.source):
            process.terminate()
        for process in (self.destination, self.source):
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _sessions(ends: broken.Ends, script: str, first: bytes) -> Iterator[_Sessions]:
    """Both sessions, connected; they have ended on leaving, whatever happened."""
    with ExitStack() as stack:
        words = stack.enter_context(tempfile.TemporaryFile())
        read_end, write_end = _pipe()
        with os.fdopen(write_end, "wb", buffering=0) as to_destination:
            with os.fdopen(read_end, "rb", buffering=0) as from_source:
                there = _ssh(ends.destination, ends.destination.shell(script), from_source, subprocess.PIPE)
            stack.callback(_end, there)
            with suppress(BrokenPipeError):
                _write(to_destination.fileno(), first)
            command = ends.source.shell(*sender_words(ends.source_path))
            here = _ssh(ends.source, command, subprocess.PIPE, to_destination, words)
        stack.callback(_end, here)
        sessions = _Sessions(here, there, words)
        requests = threading.Thread(target=_pass_requests, args=(sessions,), daemon=True)
        requests.start()
        try:
            yield sessions
        finally:
            sessions.end()
            requests.join()


def _ssh(
    settings: Settings,
    command: str,
    stdin: IO[bytes] | int,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    argv = [*settings.openssh(), *quick_cipher(settings), "-T", "--", settings.name, command]
    try:
        return subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=0)
    except FileNotFoundError:
        raise FleetError(
            "OpenSSH's client is not installed here", fix="apt-get install openssh-client"
        ) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _pass_requests(sessions: _Sessions) -> None:
    """Check what rsync on the destination asks for, let the source do it, and pass what follows."""
    assert sessions.destination.stdout and sessions.source.stdin
    incoming, outgoing = sessions.destination.stdout.fileno(), sessions.source.stdin.fileno()
    with sessions.source.stdin, suppress(OSError):
        try:
            request = _request(incoming, sessions.noise)
            if request is None:
                return
            _write(outgoing, sender_options(request.words).encode() + b"\n" + request.behind)
        except FleetError as error:
            sessions.refusal = error
            sessions.destination.terminate()
            return
        while chunk := os.read(incoming, CHUNK):
            _write(outgoing, chunk)


@dataclass(frozen=True)
class _Request:
    words: list[bytes]
    behind: bytes


def _request(fd: int, noise: list[str]) -> _Request | None:
    """The command that the bridge asks for, past what a login shell prints first, and the bytes behind it.

    None where the session ended before it.
    """
    held = b""
    while chunk := os.read(fd, CHUNK):
        held += chunk
        if found := HEADER.search(held):
            count, rest = int(found[1]), held[found.end() :]
            *words, behind = rest.split(b"\n", count)
            if len(words) == count:
                return _Request(words, behind)
        if len(held) > REQUEST_LIMIT:
            raise FleetError(
                "the host printed too much before the copy began",
                fix="its shell's start-up files must not print without a terminal",
                evidence=held[:500].decode(errors="backslashreplace").splitlines(),
                exit=Exit.UNREACHABLE,
            )
    noise.extend(held.decode(errors="replace").splitlines()[-10:])
    return None


def _follow(sessions: _Sessions, on_progress: OnProgress | None, on_wait: OnWait | None) -> broken.Outcome:
    """Read the destination's words to their end, then both statuses."""
    assert sessions.destination.stderr
    words: list[str] = []
    received, whole = 0, False
    for line in _lines(sessions.destination.stderr.fileno()):
        if progress := parse_progress(line):
            if on_progress:
                on_progress(progress)
        elif found := RECEIVED.match(line):
            received, whole = int(found[1]), True
        elif line.startswith(f"{bridge.WORD}wait "):
            if on_wait:
                on_wait("another copy into this folder", float(line.split()[-1]))
        elif line.strip() and not line.startswith("total size is "):
            words.append(line)
    status = sessions.destination.wait()
    with suppress(subprocess.TimeoutExpired):
        sessions.source.wait(END_S)
    source_status = sessions.source.poll()
    sessions.end()
    sessions.source_words.seek(0)
    said = sessions.source_words.read().decode(errors="replace").splitlines()
    return broken.Outcome(status, source_status or 0, [*sessions.noise, *words], said, received, whole)


def _lines(fd: int) -> Iterator[str]:
    held = b""
    while chunk := os.read(fd, CHUNK):
        *lines, held = (held + chunk).split(b"\n")
        yield from (line.decode(errors="replace").rstrip("\r") for line in lines)
    yield held.decode(errors="replace")


def _pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    with suppress(OSError, AttributeError):
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read_end, write_end


def _write(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
