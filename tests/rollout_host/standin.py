"""A model server's stand-in: a real process with real sockets, whose first argument (JSON) says how it behaves.

port · model · load (s until healthy) · until (not healthy without this file) · shut (not healthy with this file)
never (never healthy) · die (s until it dies at start) · says (lines logged at start)
key (a variable with what /v1 asks of clients) · once (a file that the first start leaves, and dies)
tokens (most that a completion brings) · hang (completions never answered)
deaf (ignores SIGTERM; a file: until it is there) · unbound (never listens) · child (leaves a child)
slow (s that a completion of the prompt `slow` takes) · held (that one waits for this file)
address (listens there, not on the loopback) · itl (s between the tokens of a stream) · word (what a stream repeats)
curve (itl by the --budget that follows the JSON)
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

KNOBS = json.loads(sys.argv[1])
if "--budget" in sys.argv:
    KNOBS["itl"] = KNOBS["curve"][sys.argv[sys.argv.index("--budget") + 1]]
STARTED = time.monotonic()
FLYING = [0]
STREAMED = [0]
LOCK = threading.Lock()


def say(line):
    print(line, flush=True)


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.02)


def healthy():
    loaded = time.monotonic() - STARTED >= KNOBS.get("load", 0) and Path(KNOBS.get("until", "/")).exists()
    return loaded and not KNOBS.get("never") and not Path(KNOBS.get("shut", "/nowhere")).exists()


def leave(*_):
    wait_for(KNOBS["deaf"])
    os._exit(0)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == "/health":
            ready = healthy()
            self.answer(200 if ready else 503, b"" if ready else b'{"status": "loading"}')
        elif self.refused():
            pass
        elif self.path == "/v1/models":
            self.answer(200, {"data": [{"id": KNOBS["model"]}]})
        elif self.path == "/metrics":
            text = f'# TYPE x gauge\nx:running{{model="m"}} {FLYING[0]}\nx:queued 0\n'
            text += f"fleetctl_requests_running {FLYING[0]}\nfleetctl_generated_tokens_total {STREAMED[0]}\n"
            self.answer(200, text.encode())
        else:
            self.answer(404, {"error": "no such path"})

    def refused(self):
        """Whether a key is asked for, and another one came."""
        wanted = os.environ[KNOBS["key"]] if "key" in KNOBS and self.path.startswith("/v1/") else None
        if wanted is None or self.headers["Authorization"] == f"Bearer {wanted}":
            return False
        self.answer(401, {"error": "Unauthorized"})
        return True

    def do_POST(self):
        if self.refused():
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with LOCK:
            FLYING[0] += 1
        try:
            if KNOBS.get("hang"):
                time.sleep(3600)
            if body.get("prompt") == "slow":
                time.sleep(KNOBS.get("slow", 0))
                wait_for(KNOBS.get("held", "/"))
            if body.get("stream"):
                self.stream(body)
                return
            brought = min(body["max_tokens"], KNOBS.get("tokens", 1 << 20))
            reason = "length" if brought == body["max_tokens"] else "stop"
            choice = {"text": " a" * brought, "finish_reason": reason}
            self.answer(200, {"choices": [choice], "usage": {"completion_tokens": brought}})
        finally:
            with LOCK:
                FLYING[0] -= 1

    def stream(self, body):
        """Words one by one, other ones for another prompt; the connection's end ends it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        count = body["max_tokens"]
        for number in range(count):
            time.sleep(KNOBS.get("itl", 0.01))
            text = (
                f"{KNOBS.get('word', 'word')}{number * 7919 % 1000 + len(body['messages'][-1]['content'])} "
            )
            self.event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        usage = {"prompt_tokens": 5, "completion_tokens": count}
        self.event({"choices": [], "usage": {**usage, "verify_passes": count, "accepted_tokens": 0}})
        self.wfile.write(b"data: [DONE]\n\n")
        with LOCK:
            STREAMED[0] += count

    def event(self, data):
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()


def main():
    if KNOBS.get("deaf"):
        deaf = KNOBS["deaf"] is True
        signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else leave)
    if KNOBS.get("child") and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    for line in KNOBS.get("says", []):
        say(line)
    if "once" in KNOBS and not Path(KNOBS["once"]).exists():
        Path(KNOBS["once"]).touch()
        say("dead at the first start")
        os._exit(1)
    if "die" in KNOBS:
        time.sleep(KNOBS["die"])
        say(f"dead at {time.time():.6f}")
        os._exit(KNOBS.get("status", 1))
    if KNOBS.get("unbound"):
        time.sleep(3600)
    server = ThreadingHTTPServer((KNOBS.get("address", "127.0.0.1"), KNOBS["port"]), Handler)
    say("model loaded")
    say(f"healthy from {time.time() + KNOBS.get('load', 0) - (time.monotonic() - STARTED):.6f}")
    server.serve_forever()


main()
