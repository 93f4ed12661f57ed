"""Who listens: the kernel's own answer beside /proc's, on real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.agent.host import net, sockets

PLACES = [
    (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
    (socket.AF_INET, "127.0.0.77", "127.0.0.77"),
    (socket.AF_INET6, "::1", "::1"),
    (socket.AF_INET6, "::", "::1"),
]


@pytest.mark.parametrize(("family", "bound", "reached"), PLACES)
def test_a_listener_is_found_by_both_ways(family: int, bound: str, reached: str) -> None:
    with socket.socket(family) as door:
        door.bind((bound, 0))
        port = door.getsockname()[1]
        assert port not in {one.port for one in sockets.listeners()}, "bound, and does not listen"
        door.listen()
        inode = str(Path(f"/proc/self/fd/{door.fileno()}").readlink())[len("socket:[") : -1]
        wanted = sockets.Listener(port, inode, reached)
        assert wanted in sockets.listeners()
        assert wanted in list(sockets.from_proc())
        assert net.address(port) == reached
        owner = net.port_owner(port)
        assert owner is not None and owner["pid"] == os.getpid()


BUSY = """
import os, socket
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
door = socket.create_server(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
while True:
    for file in files:
        os.close(file)
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
"""


def test_a_holder_that_opens_and_closes_files_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as busy:
        try:
            assert busy.stdout is not None
            port = int(busy.stdout.readline())
            for _ in range(50):
                owner = net.port_owner(port)
                assert owner is not None and owner["pid"] == busy.pid
        finally:
            busy.kill()


HANDED = """
import socket, sys, time
here, there = socket.socketpair()
door = socket.create_server(("127.0.0.1", 0))
port = door.getsockname()[1]
socket.send_fds(here, [b"door"], [door.fileno()])
door.close()
print(port, flush=True)
sys.stdin.readline()
kept = socket.recv_fds(there, 4, 1)
print("kept", flush=True)
sys.stdin.read()
"""


def test_a_socket_on_its_way_between_processes_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", HANDED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdin is not None
        port = int(first.stdout.readline())
        looks = []

        def pause(seconds: float) -> None:
            looks.append(seconds)
            print("take it", file=first.stdin, flush=True)
            assert first.stdout is not None and first.stdout.readline() == "kept\n"

        monkeypatch.setattr(net, "time", SimpleNamespace(sleep=pause))
        owner = net.port_owner(port)
        assert owner is not None and owner["pid"] == first.pid and len(looks) == 1


def test_many_listeners_and_no_connection() -> None:
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(400)]
    try:
        ports = {door.getsockname()[1] for door in doors}
        with socket.create_connection(("127.0.0.1", min(ports))) as near:
            found = {one.port for one in sockets.listeners()}
            assert ports <= found and near.getsockname()[1] not in found
            # Others on this machine come and go: what is there in two looks is there in the one between.
            looks = [set(look()) for look in 2 * (sockets.from_proc, sockets.listeners)]
            assert looks[0] & looks[2] <= looks[1] and looks[1] & looks[3] <= looks[2]
    finally:
        for door in doors:
            door.close()


def test_without_netlink_proc_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "NETLINK_SOCK_DIAG", 31)
    with socket.create_server(("127.0.0.1", 0)) as door:
        assert net.address(door.getsockname()[1]) == "127.0.0.1"
        assert door.getsockname()[1] in net.listening()
