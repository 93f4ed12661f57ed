"""A model server's stand-in that takes an engine's arguments; ``KNOBS`` in its environment says how it behaves.

load (s until healthy) · until (not healthy without this file) · door (does not listen without this file)
slow (s that each completion takes) · tokens (most that a completion brings) · held (`held` waits for this file)
die (s after which it dies) · lost (a rank that never joins the others)

At SIGTERM it stops listening and finishes what it accepted; ``accepted N answered M`` (requests of a user) is its
last word. Of several nodes (``--nnodes --node-rank --dist-init-addr``) rank 0 waits for the others over TCP before
it listens and asks each for its word at every completion; each ends when it loses another.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

KNOBS = json.loads(os.environ.get("KNOBS", "{}"))
WORDS = sys.argv[1:]
ARGUMENTS = {word[2:]: WORDS[at + 1] for at, word in enumerate(WORDS[:-1]) if word.startswith("--")}
STARTED = time.monotonic()
COUNTS = {"accepted": 0, "answered": 0}
FLYING = [0]
LOCK = threading.Lock()
PEERS = []


def say(line):
    print(line, flush=True)


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.02)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def do_GET(self):
        if self.path == "/health":
            loaded = time.monotonic() - STARTED >= KNOBS.get("load", 0)
            ready = loaded and Path(KNOBS.get("until", "/")).exists()
            self.answer(200 if ready else 503, {})
        elif self.path == "/v1/models":
            self.answer(200, {"data": [{"id": ARGUMENTS["served-model-name"]}]})
        elif self.path == "/metrics":
            self.metrics()
        else:
            self.answer(404, {"error": "no such path"})

    def metrics(self):
        text = "".join(
            f"{name} {FLYING[0]}\n" for name in ("fleetctl_requests_running", "sglang:num_running_reqs")
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        with LOCK:
            FLYING[0] += 1
        try:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with LOCK:
                COUNTS["accepted"] += "user" in body
            ask_peers()
            time.sleep(KNOBS.get("slow", 0))
            if body["prompt"] == "held":
                wait_for(KNOBS["held"])
            brought = min(body["max_tokens"], KNOBS.get("tokens", 1 << 20))
            choice = {"text": ARGUMENTS["served-model-name"], "finish_reason": "length"}
            self.answer(200, {"choices": [choice], "usage": {"completion_tokens": brought}})
            with LOCK:
                COUNTS["answered"] += "user" in body
        finally:
            with LOCK:
                FLYING[0] -= 1


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


def ask_peers():
    """One word to each other node and back, as a pass of a model over several hosts needs all of them."""
    with LOCK:
        for peer in PEERS:
            peer.sendall(b"?")
            if peer.recv(1) != b"!":
                die("a node is gone")


def die(why):
    say(f"RuntimeError: {why}")
    os._exit(1)


def meet():
    """Rank 0: wait for all others. Others: join it, answer its words, and end with it."""
    count, rank = int(ARGUMENTS.get("nnodes", 1)), int(ARGUMENTS.get("node-rank", 0))
    if count == 1:
        return
    if KNOBS.get("lost") == rank:
        time.sleep(3600)
    host, _, port = ARGUMENTS["dist-init-addr"].rpartition(":")
    if rank == 0:
        with socket.create_server(("", int(port))) as meeting:
            while len(PEERS) < count - 1:
                peer, _ = meeting.accept()
                say(f"rank {peer.recv(8).decode()} joined")
                PEERS.append(peer)
        for peer in PEERS:
            peer.sendall(b"g")
        threading.Thread(target=watch, daemon=True).start()
        return
    while True:
        try:
            link = socket.create_connection((host, int(port)))
            break
        except OSError:
            time.sleep(0.05)
    link.sendall(str(rank).encode())
    if link.recv(1) != b"g":
        die("rank 0 is gone before all had joined")
    say(f"rank {rank} joined {host}")
    while link.recv(1) == b"?":
        link.sendall(b"!")
    die("rank 0 is gone")


def watch():
    while True:
        time.sleep(0.2)
        ask_peers()


def main():
    if "die" in KNOBS:
        threading.Timer(KNOBS["die"], lambda: os._exit(1)).start()
    meet()
    wait_for(KNOBS.get("door", "/"))
    server = Server((ARGUMENTS.get("host", "0.0.0.0"), int(ARGUMENTS["port"])), Handler)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    say("model loaded")
    stopping.wait()
    server.shutdown()
    server.server_close()
    while FLYING[0]:
        time.sleep(0.01)
    time.sleep(0.05)
    say(f"accepted {COUNTS['accepted']} answered {COUNTS['answered']}")


main()
