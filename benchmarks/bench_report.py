"""How long a report of 10 points of 1,000 requests each takes, from records on the disk to files on the disk.

    python -m benchmarks.bench_report [--points 10] [--requests 1000] [--tokens 256] [--json] [--write]

Each run is a process of its own, so that imports are part of it, as they are for an operator. Wall-clock and CPU
seconds of the median of three. The PDF is measured apart: it is TeX's time, not fleetctl's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import synthetic

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "bench_report.json"
RUNS = 3
BOUND_S = 5.0


def main() -> int:
    """Measure, print, and say by the exit code whether the bound was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10)
    parser.add_argument("--requests", type=int, default=1000, help="of each point")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"keep the result in {RESULT.name}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), asked.points, asked.requests, asked.tokens)
    if asked.write:
        RESULT.write_text(json.dumps(found, indent=2) + "\n")
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{found['records_mb']} MB of records, {found['events']:,} events; load {found['load']}")
        for what in ("report", "import_only", "pdf_besides"):
            if found[what]:
                print(f"{what:12} {found[what]['wall_s']:6.2f} s, {found[what]['cpu_s']:6.2f} s of CPU")
    return 0 if found["report"]["cpu_s"] < BOUND_S else 1


def measure(folder: Path, points: int, requests: int, tokens: int) -> dict[str, Any]:
    """All figures of one machine at one time."""
    prompts = list(synthetic.KINDS)
    specs = [
        synthetic.Spec(f"service{number}", "tree", 30.0 + number, 2.0 + number / 10)
        for number in range(points)
    ]
    records = synthetic.write(folder, specs, repeats=requests // len(prompts), tokens=tokens)
    page = folder / "report.html"
    report = [sys.executable, "-m", "fleetctl", "report", str(records), "-o", str(page), "--json"]
    plain = timed(report, folder)
    with_pdf = timed([*report, "--latex", str(folder / "paper")], folder)
    pdf = (folder / "paper" / "report.pdf").is_file()
    return {
        "points": points,
        "requests": points * requests,
        "records_mb": round(records.stat().st_size / 1e6, 1),
        "events": sum(line.count(b"],[") + 1 for line in records.read_bytes().splitlines()),
        "page_kb": page.stat().st_size // 1024,
        "report": plain,
        "import_only": timed([sys.executable, "-m", "fleetctl", "report", "--help"], folder),
        "pdf_besides": {key: round(with_pdf[key] - plain[key], 2) for key in plain} if pdf else None,
        "load": round(os.getloadavg()[0], 1),
        "cpus": os.cpu_count(),
    }


def timed(command: list[str], folder: Path) -> dict[str, float]:
    """Seconds of a command, the median of some runs."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    walls, spent = [], []
    for _ in range(RUNS):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
        walls.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"wall_s": round(statistics.median(walls), 2), "cpu_s": round(statistics.median(spent), 2)}


if __name__ == "__main__":
    sys.exit(main())
