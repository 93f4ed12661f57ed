"""How often doctor names the cause, and how fast it reads a log, against plain reading and grep in the same run.

    python -m benchmarks.doctor [--megabytes 200] [--json] [--write] [--show]

Quality: every case of tests/doctor/cases with a log, and the hold-out's lots (tests/doctor/holdout; of one that was
learned from, the figure of the first time). A cause counts as right where the finding and its remedy contain all that
was written down before (``says``). Speed: logs of ``--megabytes`` of four kinds, each of which fails at its end.
``--show`` names the hold-out's wrong answers: not for whoever still tunes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests" / "doctor"
RESULT = HERE / "results" / "doctor.json"
BLOCK = 1 << 20
STAMP = "[2026-01-{day:02} {hour:02}:{minute:02}:{second:02} TP0] "
DECODE = (
    STAMP + "Decode batch, #running-req: {a}, #token: {b}, token usage: 0.{c:02}, accept len: {a}.{c:02}, "
    "cuda graph: True, gen throughput (token/s): {b}.{c:02}, #queue-req: {a}\n"
)
ACCESS = STAMP + 'INFO:     10.0.0.{a}:{b} - "POST /v1/completions HTTP/1.1" 200 OK\n'
REQUEST = STAMP + "Receive: rid={id}, prompt={words}\n"
JOURNAL = (
    '{{"__CURSOR":"s={id};b={id};x={b}","_PID":"{b}","_SYSTEMD_UNIT":"llm.service","PRIORITY":"6",'
    '"SYSLOG_IDENTIFIER":"python","MESSAGE":"[2026-01-{day:02} {hour:02}:{minute:02}:{second:02}] Decode batch, '
    '#running-req: {a}, #token: {b}"}}\n'
)
DECODING = [DECODE.format(a=1, b=number, c=1, day=1, hour=1, minute=1, second=1) for number in range(200)]
# What a log consists of: numbers that change; texts that never come twice; a journal; one failed start after another.
KINDS = {
    "decoding": (DECODE, DECODE, DECODE, ACCESS),
    "texts": (REQUEST,),
    "journal": (JOURNAL,),
    "failing": (),
}
START = """\
[2026-01-29 00:50:01] server_args=ServerArgs(model_path='/m', port=30000)
[2026-01-29 00:50:02] Ignore import error when loading sglang.srt.models.x: No module named 'torchcodec'
[2026-01-29 00:50:40] The server is fired up and ready to roll!
"""
FRAME = '  File "/e/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1775, in _call\n    f()\n    ^^^\n'
END = """\
[2026-01-29 00:51:38 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/e/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 3067, in run_scheduler_process
    scheduler.event_loop_overlap()
FRAMEStriton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 106496, Hardware limit: 101376.
[2026-01-29 00:51:38] Received sigquit from a child process. It usually means the child failed.
""".replace("FRAMES", FRAME * 40)


def holdout(path: Path, show: bool) -> dict[str, Any]:
    """How many of a hold-out's faults are answered with the right family, and with the right cause."""
    from fleetctl.doctor.logs import diagnose_text

    faults = yaml.safe_load(path.read_text())
    family = cause = silent = 0
    for one in faults:
        first = next((found for found in diagnose_text(one["log"]) if found.severity == "error"), None)
        text = f"{first.what} {first.remedy.text}" if first else ""
        right_family = first is not None and first.family in one["family"]
        right_cause = right_family and all(re.search(part, text, re.I) for part in one["says"])
        silent += first is None
        family += right_family
        cause += right_cause
        if show and not right_cause:
            print(f"{path.stem}/{one['id']}: {first.rule if first else None}: {text}", file=sys.stderr)
    return {"faults": len(faults), "right_family": family, "right_cause": cause, "nothing_said": silent}


def first_asked(lot: str) -> dict[str, Any] | None:
    """What a lot gave when doctor was first asked, where it was learned from since: asking again measures nothing."""
    asked: dict[str, dict[str, Any]] = json.loads((TESTS / "holdout" / "asked.json").read_text())
    return asked.get(lot)


def cases() -> dict[str, int]:
    """The handed and the collected cases with a log: the right rule first, and nothing where all is well."""
    sys.path.insert(0, str(TESTS.parents[1]))
    from fleetctl.doctor.logs import diagnose_text
    from tests.doctor.builders import context

    right = silent = faults = healthy = 0
    for path in sorted(TESTS.glob("cases/*/*.yaml")):
        case = yaml.safe_load(path.read_text())
        if "log" not in case:
            continue
        found = diagnose_text(case["log"], context(case))
        if isinstance(case["expect"], dict):
            faults += 1
            right += bool(found) and found[0].rule == case["expect"].get("rule", path.parent.name)
        else:
            healthy += 1
            silent += not [one for one in found if one.severity != "info"]
    return {"faults": faults, "right_rule_first": right, "healthy": healthy, "healthy_silent": silent}


def make_log(path: Path, size: int, kind: str) -> None:
    """A log of that many bytes and of one of :data:`KINDS`: a start, its body, an end."""
    chance = random.Random(4)
    forms = KINDS[kind]
    vocabulary = [f"w{chance.getrandbits(20):x}" for _ in range(5000)]
    with path.open("w") as file:
        file.write(START)
        while file.tell() < size:
            lines = [] if forms else [START, *DECODING, END, END]
            for number in range(4000 if forms else 0):
                values: dict[str, object] = {"a": chance.randrange(100), "b": chance.randrange(90_000)}
                values |= {"c": chance.randrange(100), "id": f"{chance.getrandbits(128):032x}"}
                values["words"] = " ".join(chance.choices(vocabulary, k=12)) if kind == "texts" else ""
                when = {
                    "day": 1 + number % 28,
                    "hour": number % 24,
                    "minute": number % 60,
                    "second": number % 59,
                }
                lines.append(forms[number % len(forms)].format(**values, **when))
            file.write("".join(lines))
        file.write(END)


def one_diagnosis(path: str) -> dict[str, Any]:
    """In a process of its own: its seconds, its memory, what it says."""
    code = f"import sys; sys.path.insert(0, {str(HERE.parent)!r}); "
    code += f"from benchmarks.doctor import measured; measured({path!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(path: str) -> None:
    """What :func:`one_diagnosis` reads."""
    from fleetctl.doctor.logs import diagnose_log

    begun, before = time.perf_counter(), time.process_time()
    found = diagnose_log(path)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"s": seconds, "cpu_s": cpu, "rss_mib": memory, "rules": [one.rule for one in found]}))


def speed(megabytes: int, kind: str) -> dict[str, Any]:
    """The diagnosis against reading the file and against counting a word in it."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        path = Path(folder) / "server.log"
        make_log(path, megabytes * 1_000_000, kind)
        reading, grep, runs = [], [], []
        for _ in range(3):
            begun = time.perf_counter()
            with path.open("rb", buffering=0) as file:
                while file.read(BLOCK):
                    pass
            reading.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            subprocess.run(["grep", "-c", "Traceback", str(path)], stdout=subprocess.PIPE, check=False)
            grep.append(time.perf_counter() - begun)
            runs.append(one_diagnosis(str(path)))
        best = min(runs, key=lambda run: run["s"])
        assert best["rules"] == ["arch-triton-smem"], best
        return {
            "megabytes": megabytes,
            "seconds": round(best["s"], 2),
            "cpu_seconds": round(best["cpu_s"], 2),
            "rss_mib": best["rss_mib"],
            "reading_s": round(min(reading), 3),
            "grep_s": round(min(grep), 3),
            "ratio_to_grep": round(best["s"] / min(grep), 1),
            "load": round(os.getloadavg()[0], 1),
        }


def main() -> None:
    """Measure, print, and with ``--write`` keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    result: dict[str, Any] = {"cases": cases()}
    for path in sorted((TESTS / "holdout").glob("*.yaml")):
        result[f"holdout_{path.stem}"] = first_asked(path.stem) or holdout(path, args.show)
    for kind in KINDS:
        result[f"log_{kind}"] = speed(args.megabytes, kind)
    if args.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
    if args.json:
        print(json.dumps(result))
        return
    for name, part in result.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in part.items()))


if __name__ == "__main__":
    main()
