import sys, tempfile, time
from pathlib import Path
from tests.conftest import Lab
from tests.faults import matrix, inject, points

lab = Lab()
lab.reset()
fault = inject.FAULTS[sys.argv[1]]
kinds = [k for k in fault.kinds if len(sys.argv) < 3 or k.name in sys.argv[2:]]
for kind in kinds:
    b = time.time()
    vs = matrix.run(lab, "ct129", Path(tempfile.mkdtemp()), fault, points.cells(kind))
    print(fault.name, kind.name, f"{time.time() - b:.0f} s", sum(not v.problems for v in vs), "of", len(vs))
    for v in vs:
        print(
            "  ",
            "ok " if not v.problems else "BAD",
            v.point,
            v.outcome,
            *["\n       " + p for p in v.problems],
        )
