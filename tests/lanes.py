"""All tests in two lanes at once: ``python -m tests.lanes [ARGUMENTS OF PYTEST]``.

The first lane is an ordinary pytest, here. The second has mounts and a network of its own, and with them a lab of its
own; it takes what SECOND names, none of which needs an index of packages. Whatever SECOND does not name is the first's.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECOND = (
    "tests/adoption",
    "tests/bench",
    "tests/faults",
    "tests/lab",
    "tests/rollout_host",
    "tests/router",
    "tests/supervised",
)
ENTER = """\
set -e; umount --recursive --lazy /var/lib/fleetctl-lab 2>/dev/null || true
ip link set lo up; mkdir -p /var/lib/fleetctl-lab; mount -t tmpfs tmpfs /run
mount --bind "$0" /var/lib/fleetctl-lab; exec "$@"
"""
NONE_CHOSEN = 5
LOOK_S = 0.5


def main(arguments: Sequence[str]) -> int:
    """Run both lanes to their end; pytest's exit status of the first that failed."""
    pytest = [sys.executable, "-m", "pytest", *arguments]
    rest = [f"--ignore={folder}" for folder in SECOND]
    with tempfile.TemporaryDirectory(prefix="fleetctl-lane-", dir="/var/lib") as folder:
        said = Path(folder, "said")
        lab = Path(folder, "lab")
        lab.mkdir()
        apart = ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", ENTER, str(lab)]
        with said.open("wb") as output:
            command = [*apart, *pytest, "-p", "no:cacheprovider", *SECOND]
            second = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        try:
            first = subprocess.run([*pytest, *rest, "tests"], cwd=ROOT, check=False).returncode
            print(f"== the second lane: {', '.join(SECOND)}", flush=True)
            ends = [first, _told(second, said)]
        except BaseException:
            second.terminate()
            second.wait()
            raise
    ran = [end for end in ends if end != NONE_CHOSEN]
    return next((end for end in ran if end), 0 if ran else NONE_CHOSEN)


def _told(process: subprocess.Popen[bytes], said: Path) -> int:
    """Print what a lane has said and goes on saying; its exit status."""
    with said.open(errors="replace") as words:
        while True:
            ended = process.poll()
            print(words.read(), end="", flush=True)
            if ended is not None:
                return ended
            time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
