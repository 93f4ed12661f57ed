"""The distributions of a site-packages folder by their ``.dist-info``: which files each owns, says RECORD."""

from __future__ import annotations

import base64
import csv
import io
import os
import re
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

from fleetctl.agent.capture.foldertree import shown
from fleetctl.agent.capture.wheel_record import read_record, record_sha256
from fleetctl.agent.environment.rewrite import replace_bytes
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.sha import sha256

INFO = ".dist-info"
RECORD = "RECORD"


class Row(NamedTuple):
    """One line of a RECORD: a path relative to site-packages (``/`` between parts), ``sha256=…``, a size."""

    path: str
    hash: str
    size: str


class Site:
    """A site-packages folder, which lies at ``lead`` inside its environment.

    A *part* holds one distribution's files as site-packages does; what else they need (``bin``) is beside them.
    """

    def __init__(self, environment: str, lead: str, part: bool = False) -> None:
        self.environment = environment
        self.lead = lead
        self.part = part
        self.packages = environment if part else f"{environment}/{lead}"

    def infos(self) -> Dict[str, List[str]]:
        """Canonical name → names of its ``.dist-info`` folders (more than one where it is there twice)."""
        found: Dict[str, List[str]] = {}
        for entry in sorted(os.listdir(self.packages)):
            if entry.endswith(INFO):
                found.setdefault(canonical(entry[: -len(INFO)].split("-")[0]), []).append(entry)
        return found

    def inside(self, path: str) -> str:
        """A RECORD's path relative to the environment. Raises ValueError where it leads out of it."""
        place = os.path.normpath(os.path.join(self.lead, path))
        if os.path.isabs(place) or place == os.pardir or place.startswith(os.pardir + "/") or "\0" in place:
            raise ValueError(path)
        return place

    def file(self, inside: str) -> str:
        """Where the file is that lies at ``inside`` in an environment."""
        if self.part and inside.startswith(self.lead + "/"):
            return f"{self.packages}/{inside[len(self.lead) + 1 :]}"
        return f"{self.environment}/{inside}"

    def record(self, info: str) -> List[Row]:
        """The RECORD's rows. Raises :class:`AgentError` (exit 5) where it is missing, malformed, or points out
        of the environment."""
        path = f"{self.packages}/{info}/{RECORD}"
        state = read_record(Path(path))
        if state.state != "ok":
            raise refused(path, f"is {state.state}", state.why)
        text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
        rows = [Row(*line) for line in csv.reader(io.StringIO(text, newline="")) if line]
        for row in rows:
            try:
                self.inside(row.path)
            except ValueError:
                raise refused(path, f"points out of the environment: {shown(row.path)}", row.path) from None
        return rows

    def digest(self, info: str) -> Optional[str]:
        """What a BOM calls the record's sha256; None where there is no RECORD that can be read."""
        record = read_record(Path(self.packages, info, RECORD))
        return record_sha256(record, info) if record.state == "ok" else None

    def files(self, info: str) -> Set[str]:
        """Paths relative to the environment that the RECORD names."""
        return {self.inside(row.path) for row in self.record(info)}

    def write_record(self, info: str, rows: Iterable[Row]) -> None:
        """Put the rows, sorted, in the place of what is there."""
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(sorted(rows))
        content = text.getvalue().encode("utf-8", "surrogateescape")
        replace_bytes(f"{self.packages}/{info}/{RECORD}", content)

    def refresh(self, changed: Set[str]) -> Set[str]:
        """Bring the RECORDs up to date with the changed, new or removed files (relative to the environment)
        that they name; the ``.dist-info`` folders whose RECORD was rewritten."""
        names = {os.path.basename(path).encode("utf-8", "surrogateescape") for path in changed}
        rewritten = set()
        for infos in self.infos().values() if names else ():
            for info in infos:
                content = _bytes(f"{self.packages}/{info}/{RECORD}")
                if any(name in content for name in names) and self._refresh(info, changed):
                    rewritten.add(info)
        return rewritten

    def _refresh(self, info: str, changed: Set[str]) -> bool:
        try:
            rows = self.record(info)
        except AgentError:
            return False
        after = []
        for row in rows:
            inside = self.inside(row.path)
            if inside not in changed or not row.hash:
                after.append(row)
            elif os.path.lexists(f"{self.environment}/{inside}"):
                after.append(row_of(row.path, f"{self.environment}/{inside}"))
        if after == rows:
            return False
        self.write_record(info, after)
        return True


def find_site(environment: str) -> Site:
    """The one site-packages folder of a venv. Raises :class:`AgentError` (exit 5) where there is not one."""
    found = sorted(Path(environment).glob("lib/python3.*/site-packages"))
    if len(found) != 1:
        raise AgentError(
            f"{shown(environment)} has {len(found) or 'no'} site-packages folder{'s' if found else ''}",
            where=shown(environment),
            fix="name a venv: the folder that holds pyvenv.cfg and lib/python3.x/site-packages",
            evidence=[str(path) for path in found],
            exit=PREFLIGHT,
        )
    return Site(environment, os.path.relpath(found[0], environment))


def canonical(name: str) -> str:
    """A distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def row_of(path: str, file: str) -> Row:
    """The RECORD row that fits the file as it is now."""
    content = Path(file).read_bytes()
    digest = base64.urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
    return Row(path, f"sha256={digest}", str(len(content)))


def refused(path: str, what: str, evidence: str) -> AgentError:
    """The error for a RECORD that cannot be trusted."""
    return AgentError(
        f"{shown(os.path.basename(os.path.dirname(path)))}: its RECORD {what}",
        where=shown(path),
        fix="install that distribution anew there (pip install --force-reinstall --no-deps), or name another source",
        evidence=[shown(evidence)],
        exit=PREFLIGHT,
    )


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
