"""``python -m benchmarks.gpu.patched WHEEL SITE``: what the patch set makes of sglang's wheel, written into SITE."""

from __future__ import annotations

import sys
from pathlib import Path

from fleetctl.patches.patchset import load
from fleetctl.patches.plan import plan
from fleetctl.patches.trees import Wheel

ROOT = Path(__file__).resolve().parents[2]
NAME = "ddtree-sglang-0.5.11"


def write(wheel: Path, site: Path) -> int:
    """Write the patched and the new files, at their places below ``site``; how many they are."""
    patches, tree = load(ROOT, NAME), Wheel(wheel)
    before = tree.contents([change.path for change in patches.changes])
    (planned,) = plan([patches], tree.distributions(["sglang"]), before, [patches], wheel.name)
    for one in planned.writes:
        path = site / one.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one.content or b"")
    return len(planned.writes)


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]), Path(sys.argv[2]))} files of {NAME} in {sys.argv[2]}")
