"""Copy a folder of another host to this one: rsync here, its "remote shell" the session that this runs in.

The controller sends this module and a job as the first bytes of the session's standard input. It runs rsync,
and rsync runs ``CONNECT``: that says which command rsync wants on the other host (``fleetctl-bridge <words>``
on standard output, and a line for each word), then passes bytes between rsync and the session. Standard error
carries rsync's progress and words, in lines. Nothing of it is written to the disk but the copy. It imports what
Python has at hand when it starts, and no more, and CONNECT is no Python: its start is a good part of a small
copy.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import time

WORD = "fleetctl-bridge "
TOKEN = "fleetctl:/fleetctl-source/"
CHUNK = 1 << 18
END_S = 5.0
TELL_S, REST_S, RESTLESS_READS = 0.2, 0.02, 200
FAILED, LOCKED, NO_RSYNC = 11, 14, 127
CHANNEL_IN, CHANNEL_OUT, LOCK, SCRIPT = 3, 4, 5, 6
CONNECT = b"""\
shift
exec 5>&- 6<&-
{ echo "fleetctl-bridge $#"; printf '%s\\n' "$@"; } >&4
exec 7<&0 </dev/null
cat <&7 >&4 3<&- 2>/dev/null &
exec 7<&- 4>&-
cat <&3 2>/dev/null
kill $! 2>/dev/null
exit 0
"""
SIGKILL, SIGTERM, F_SETPIPE_SZ = 9, 15, 1031


def main(destination: str, wait_s: float, options: list[str], files: bytes | None) -> int:
    """Copy into ``destination``, made where it is missing, and return rsync's exit status.

    ``options`` of rsync. ``files``: relative names, each with a NUL behind it, or None for the whole folder.
    Another copy into the same folder is waited for, at most ``wait_s``.
    """
    try:
        os.makedirs(destination, exist_ok=True)
        lock = os.open(destination, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        return _say(f"{destination}: {error.strerror}", FAILED)
    if not _locked(lock, wait_s):
        return _say("locked", LOCKED)
    options = [*options, "--blocking-io", "-e", f"sh /proc/self/fd/{SCRIPT}"]
    if files is not None:
        options += ["--files-from=-", "--from0"]
    argv = ["rsync", *options, "--", TOKEN, destination.rstrip("/") + "/"]
    output, output_end = os.pipe()
    fcntl.fcntl(output, F_SETPIPE_SZ, 1 << 20)
    child = _start(argv, [_in_memory(files or b""), output_end, 2, 0, 1, lock, _in_memory(CONNECT)])
    for fd in (0, 1, output_end, lock):
        os.close(fd)
    return _watched(child, output)


def _start(argv: list[str], fds: list[int]) -> int:
    """rsync in a session of its own, with these descriptors as its 0, 1, 2 and so on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RSYNC_")}
    environment["LC_ALL"] = "C"
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        for number, fd in enumerate([fcntl.fcntl(fd, fcntl.F_DUPFD, len(fds)) for fd in fds]):
            os.dup2(fd, number)
            os.close(fd)
        os.execvpe(argv[0], argv, environment)
    except FileNotFoundError:
        _say("no-rsync", 0)
    finally:
        os._exit(NO_RSYNC)


def _watched(child: int, output: int) -> int:
    """Tell rsync's progress until all its processes have ended; where the session goes first, so do they."""
    watcher = os.fork()
    if watcher == 0:
        os.close(output)
        _end_with_session(child)
    _tell(output)
    status = os.waitpid(child, 0)[1]
    os.kill(watcher, SIGKILL)
    _kill(child, SIGKILL)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _tell(output: int) -> None:
    """Pass rsync's lines on; of its progress, a line for each file, what is newest each ``TELL_S``."""
    held, told, reads = b"", 0.0, 0
    while True:
        chunk = os.read(output, CHUNK)
        if not chunk:
            return
        *lines, held = (held + chunk).split(b"\n")
        progress = held.split(b"\r")[-2:-1]
        held = held[held.rfind(b"\r") + 1 :]
        if progress and time.monotonic() - told > TELL_S:
            told = time.monotonic()
            lines += progress
        for line in lines:
            _write(2, line.rpartition(b"\r")[2] + b"\n")
        reads += 1
        if reads > RESTLESS_READS:
            time.sleep(REST_S)


def _end_with_session(child: int) -> None:
    """Poll standard error, which nobody reads once the session is gone; rsync may keep what it has got."""
    session = select.poll()
    session.register(2, 0)
    session.poll()
    _kill(child, SIGTERM)
    time.sleep(END_S)
    _kill(child, SIGKILL)
    os._exit(0)


def _kill(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        return


def _locked(fd: int, wait_s: float) -> bool:
    deadline, told = time.monotonic() + wait_s, 0.0
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if time.monotonic() - told >= 1:
            told = time.monotonic()
            _say(f"wait {left:.0f}", 0)
        time.sleep(0.05)


def _in_memory(content: bytes) -> int:
    fd = os.memfd_create("fleetctl-bridge")
    _write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _write(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _say(words: str, status: int) -> int:
    _write(2, f"{WORD}{words}\n".encode(errors="backslashreplace"))
    return status
