"""Part of the tests' agent, on the host: holds a rollout where its slot's order says, or lets its clock jump.

The order is ``/run/fleetctl-faults/<slot>.json``: ``{"step", "at": "begin" | "end" | "module.function", "clock"?}``.
``held`` beside it says that it is there, ``go`` lets it go on.
"""

import importlib
import json
import os
import sys
import time

ORDERS = "/run/fleetctl-faults"
MODULES = {"systemd": "fleetctl.agent.units.systemd", "trial": "fleetctl.agent.rollout.trial"}


def install():
    """Put the hold in place; nothing where the slot has no order."""
    if sys.argv[1:2] not in (["rollout"], ["recover"]) or len(sys.argv) < 3:
        return
    try:
        with open(os.path.join(sys.argv[2], "plan.json")) as plan:
            slot = json.load(plan)["slot"]
        with open(f"{ORDERS}/{slot}.json") as order:
            asked = json.load(order)
    except (OSError, ValueError):
        return
    unpacked = sys.argv[0][: -len(".pyz")]
    if os.path.isdir(unpacked):
        sys.path.insert(0, unpacked)
    Hold(slot, asked)


class Hold:
    def __init__(self, slot, asked):
        from fleetctl.agent.rollout.record import Record

        self.base, self.asked, self.done = f"{ORDERS}/{slot}", asked, False
        self.step = None
        begin, ok = Record.begin, Record.ok

        def begun(record, step, *rest, **named):
            self.step = step
            begin(record, step, *rest, **named)
            self.at("begin")

        def ended(record, *rest, **named):
            self.at("end")
            ok(record, *rest, **named)

        Record.begin, Record.ok = begun, ended
        if "." in asked["at"]:
            self.wrap(*asked["at"].split("."))

    def wrap(self, module, name):
        place = importlib.import_module(MODULES[module])
        original = getattr(place, name)

        def wrapped(*rest, **named):
            answer = original(*rest, **named)
            self.at(f"{module}.{name}")
            return answer

        setattr(place, name, wrapped)

    def at(self, place):
        if self.done or self.step != self.asked["step"] or place != self.asked["at"]:
            return
        self.done = True
        open(self.base + ".held", "w").close()
        while os.path.isdir(ORDERS) and not os.path.exists(self.base + ".go"):
            time.sleep(0.05)
        if "clock" in self.asked:
            real, by = time.time, self.asked["clock"]
            time.time = lambda: real() + by
