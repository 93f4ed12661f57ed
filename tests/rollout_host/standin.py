"""A model server's stand-in: a real process with real sockets, whose one argument (JSON) says how it behaves.

port · model · load (s until healthy) · die (s until it dies at start) · says (lines logged at start)
tokens (most that a completion brings) · hang (completions never answered) · never (never healthy)
deaf (ignores SIGTERM) · slow (s that a completion takes) · unbound (never listens) · child (leaves a child)
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KNOBS = json.loads(sys.argv[1])
STARTED = time.monotonic()
FLYING = [0]
LOCK = threading.Lock()


def say(line):
    print(line, flush=True)


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
            ready = not KNOBS.get("never") and time.monotonic() - STARTED >= KNOBS.get("load", 0)
            self.answer(200 if ready else 503, b"" if ready else b'{"status": "loading"}')
        elif self.path == "/v1/models":
            self.answer(200, {"data": [{"id": KNOBS["model"]}]})
        elif self.path == "/metrics":
            self.answer(200, b'# TYPE x gauge\nx:running{model="m"} %d\nx:queued 0\n' % FLYING[0])
        else:
            self.answer(404, {"error": "no such path"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with LOCK:
            FLYING[0] += 1
        try:
            if KNOBS.get("hang"):
                time.sleep(3600)
            time.sleep(KNOBS.get("slow", 0) if body["prompt"] == "slow" else 0)
            brought = min(body["max_tokens"], KNOBS.get("tokens", 1 << 20))
            reason = "length" if brought == body["max_tokens"] else "stop"
            choice = {"text": " a" * brought, "finish_reason": reason}
            self.answer(200, {"choices": [choice], "usage": {"completion_tokens": brought}})
        finally:
            with LOCK:
                FLYING[0] -= 1


def main():
    if KNOBS.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if KNOBS.get("child") and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    for line in KNOBS.get("says", []):
        say(line)
    if "die" in KNOBS:
        time.sleep(KNOBS["die"])
        say(f"dead at {time.time():.6f}")
        os._exit(KNOBS.get("status", 1))
    if KNOBS.get("unbound"):
        time.sleep(3600)
    server = ThreadingHTTPServer(("127.0.0.1", KNOBS["port"]), Handler)
    say("model loaded")
    say(f"healthy from {time.time() + KNOBS.get('load', 0) - (time.monotonic() - STARTED):.6f}")
    server.serve_forever()


main()
