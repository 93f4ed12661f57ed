"""What a rollout's crash left, looked at before anything is done about it: the slot may be in order again."""

from __future__ import annotations

from typing import Any, Optional, Set

from fleetctl.agent import files
from fleetctl.agent.host import net
from fleetctl.agent.rollout import probes, record, trial
from fleetctl.agent.rollout.steps import Work
from fleetctl.agent.units import systemd

GONE = ("not-found", "masked")
OFF = ("disabled", "masked", "")


class Aftermath:
    """The slot as it is now beside the record of the rollout that was cut short."""

    def __init__(self, work: Work, begun: Set[str]) -> None:
        self._work = work
        self._begun = begun
        self._new: str = work.new["unit"]
        self._old: Optional[str] = work.old["unit"] if work.old else None
        self.units = systemd.show([name for name in dict.fromkeys((self._new, self._old)) if name])

    def runs(self, unit: str) -> bool:
        """Whether systemd runs the unit, or is about to."""
        return probes.running(self.units[unit])

    def is_ours(self) -> bool:
        """Whether what runs under the new service's unit can be this rollout's start: in this boot, as installed."""
        started = next((event for event in self._work.record.past if event["step"] == "start"), None)
        if started is None or (started.get("data") or {}).get("boot") != trial.boot():
            return False
        text, there = self._work.new["unit_text"], self._work.before["units"][self._new]
        return trial.is_as_it_was(text, there) or trial.stands(self._new, str(text), there)

    def old_is_back(self) -> bool:
        """Whether a boot has brought the old service, or the unit's old text, before the commit came so far."""
        if self._old is None or not self.runs(self._old):
            return False
        if self._new != self._old:
            return not self.runs(self._new)
        text = self._work.new["unit_text"]
        as_it_was = trial.is_as_it_was(text, self._work.before["units"][self._new])
        committed = files.read_text(str(systemd.UNITS / self._new)) == text
        return not as_it_was and not committed and not self.is_ours()

    def superseded(self) -> str:
        """What somebody else has made of the slot since, so that nothing is undone; empty where nobody has."""
        return self._recorded() or self._taken() or self._by_hand() or self._retired()

    def _recorded(self) -> str:
        now = files.read_json(record.slot_path(self._work.plan["slot"]))
        if not isinstance(now, dict) or now == self._work.before["slot"]:
            return ""
        if now.get("rollout") == self._work.plan["id"]:
            return ""
        return f"rollout {now.get('rollout')} has filled the slot with {now.get('unit')} since"

    def _taken(self) -> str:
        owner = net.port_owner(int(self._work.plan["port"]))
        if owner is None or not owner["unit"] or owner["unit"] in (self._new, self._old):
            return ""
        return f"port {self._work.plan['port']} is held by {owner['unit']}, which was started since"

    def _by_hand(self) -> str:
        """The new service, or another text of the same unit, started by somebody else."""
        if not self.runs(self._new) or self.is_ours() or "commit" in self._begun:
            return ""
        if self._new == self._old:
            return (
                "" if self._text() == self._was() else f"the file of {self._new} was changed since, and runs"
            )
        return "" if self._old and self.runs(self._old) else f"{self._new} was started by somebody else since"

    def _retired(self) -> str:
        """The old service taken out of use: not to be started again behind somebody's back."""
        if self._old is None or self.runs(self._old) or "commit" in self._begun:
            return ""
        now, there = self.units[self._old], self._work.before["units"][self._old]
        if now.get("LoadState") in GONE and there["text"] is not None:
            return f"the unit file of {self._old} was taken away since"
        if there["enabled"] == "enabled" and now.get("UnitFileState") in OFF:
            return f"{self._old} was disabled since"
        return ""

    def _text(self) -> Any:
        return files.read_text(self.units[self._new].get("FragmentPath", ""))

    def _was(self) -> Any:
        return self._work.before["units"][self._new]["text"]
