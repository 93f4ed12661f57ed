"""Who listens: the kernel's own answer beside /proc's, on real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetctl.agent import net, sockets

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
time.sleep(0.06)
kept = socket.recv_fds(there, 4, 1)
sys.stdin.read()
"""


def test_a_socket_on_its_way_between_processes_is_looked_for_again() -> None:
    command = [sys.executable, "-c", HANDED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        owner = net.port_owner(int(first.stdout.readline()))
        assert owner is not None and owner["pid"] == first.pid


def test_many_listeners_and_no_connection() -> None:
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(400)]
    try:
        ports = {door.getsockname()[1] for door in doors}
        with socket.create_connection(("127.0.0.1", min(ports))) as near:
            found = {one.port for one in sockets.listeners()}
            assert ports <= found and near.getsockname()[1] not in found
            for _ in range(20):
                proc, asked = set(sockets.from_proc()), set(sockets.listeners())
                if proc == asked:
                    break
                time.sleep(0.1)  # others on this machine come and go
            assert proc == asked
    finally:
        for door in doors:
            door.close()


def test_without_netlink_proc_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "NETLINK_SOCK_DIAG", 31)
    with socket.create_server(("127.0.0.1", 0)) as door:
        assert net.address(door.getsockname()[1]) == "127.0.0.1"
        assert door.getsockname()[1] in net.listening()
