"""A server that answers as sglang's does, each token the sum of the two before; arms change how it says so."""

from __future__ import annotations

import gzip
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SEEN: list[int] = []
FLAGS = " ".join(sys.argv)
WRONG = "unsafe" in FLAGS
SPECULATES = "--speculative-algorithm" in FLAGS
METRICS = """# TYPE sglang:ddtree_passes_total counter
sglang:ddtree_passes_total{mode="tree"} 4.0
sglang:ddtree_phase_seconds_total{clock="device",mode="tree",phase="build"} 0.002
sglang:ddtree_phase_seconds_total{clock="device",mode="tree",phase="verify"} 0.018
sglang:ddtree_nodes_drafted_total{depth="1",mode="tree"} 8.0
sglang:ddtree_nodes_accepted_total{depth="1",mode="tree"} 3.0
"""


def answer(body: dict[str, Any]) -> dict[str, Any]:
    sampling = body["sampling_params"]
    if sampling.get("temperature", 0) and "DDTREE" in FLAGS:
        reason = {"type": "abort", "message": "set temperature to 0"}
        return {"output_ids": [], "meta_info": {"finish_reason": reason, "completion_tokens": 0}}
    ids = body.get("input_ids") or [ord(letter) for letter in body["text"]]
    made: list[int] = []
    for count in range(sampling["max_new_tokens"]):
        ids = [*ids, (ids[-1] + ids[-2] + (1 if WRONG and count == 5 else 0)) % 97]
        made.append(ids[-1])
    meta: dict[str, Any] = {"completion_tokens": len(made)}
    if SPECULATES:
        meta["spec_verify_ct"] = (len(made) + 3) // 4
    if body.get("return_logprob"):
        token = made[0]
        meta["output_top_logprobs"] = [[[-0.1, token, None], [-0.35, (token + 1) % 97, None]]]
    return {"output_ids": made, "text": "", "meta_info": meta}


class Handler(BaseHTTPRequestHandler):
    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._say(METRICS.encode() if self.path == "/metrics" else b"")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._say(json.dumps({"tokens": [ord(letter) % 97 for letter in body["prompt"]]}).encode())
        elif self.path == "/start_profile":
            folder = Path(body["output_dir"])
            folder.mkdir(parents=True)
            events = [{"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 40}]
            with gzip.open(folder / "0.trace.json.gz", "wt") as file:
                json.dump({"traceEvents": events}, file)
            self._say(b"ok")
        else:
            SEEN.append(1)
            if "--dies" in sys.argv and len(SEEN) > 4:
                os._exit(3)
            self._say(json.dumps(answer(body)).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    if "broken" in FLAGS:
        sys.exit("RuntimeError: broken on purpose")
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
