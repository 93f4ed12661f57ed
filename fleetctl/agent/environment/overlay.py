"""Put a distribution from another place into a derived environment, in the place of the one that is there.

By RECORD only: what the old one's RECORD names goes, unless another distribution names it too; what the new
one's RECORD names comes. The controller planned it; what is refused here are facts of the disk.
"""

from __future__ import annotations

import filecmp
import os
from pathlib import Path
from typing import Dict, List, Optional, Set

from fleetctl.agent.capture.foldertree import listed, shown
from fleetctl.agent.capture.installed import Site, canonical
from fleetctl.agent.capture.reader import Job, read_all
from fleetctl.agent.capture.wheel_record import INSTALLERS_OWN, Entry, read_record
from fleetctl.agent.environment.linktree import place
from fleetctl.agent.environment.marker import Proof
from fleetctl.agent.environment.rewrite import SUFFIX, forget_compiled, glob_escaped, prune_empty
from fleetctl.agent.environment.scaffold import is_scaffold
from fleetctl.agent.errors import PREFLIGHT, AgentError


class Source:
    """Where a distribution comes from: an environment, or a *part* folder that holds nothing else."""

    def __init__(self, path: str, distribution: str, lead: str) -> None:
        self.distribution = distribution
        self.site = Site(path, lead, part=not os.path.isdir(f"{path}/{lead}"))
        if not os.path.isdir(path):
            raise self.refused(f"there is no folder {shown(path)}", "")
        infos = self.site.infos().get(canonical(distribution), [])
        if len(infos) != 1:
            raise self.refused(f"it is {'there twice' if infos else 'not there'}", " ".join(infos))
        self.info = infos[0]
        self.record = f"{lead}/{self.info}/RECORD"

    def files(self) -> Dict[str, str]:
        """Path inside an environment → path of the file here; byte code left out.

        Raises :class:`AgentError` (exit 5) for a RECORD that is missing, malformed or points out, that names
        files that are not there, the venv's own, or files without a hash, and for a copy of a package inside itself.
        """
        rows = [row for row in self.site.record(self.info) if not row.path.endswith(".pyc")]
        found = {self.site.inside(row.path): row.path for row in rows}
        missing = [path for inside, path in found.items() if not os.path.exists(self.site.file(inside))]
        if missing:
            raise self.refused(f"{len(missing)} files of its RECORD are missing", listed(missing))
        own = [path for inside, path in found.items() if is_scaffold(inside)]
        if own:
            raise self.refused(f"its RECORD names what makes a venv: {listed(own)}", "")
        unhashed = (
            found.keys() - self.hashes().keys() - {self.site.inside(path) for path in self._installers_own()}
        )
        if unhashed:
            what = f"its RECORD has no hash of {listed(sorted(unhashed))}, so nothing says what must come"
            raise self.refused(what, "")
        require_no_nested(self.site, set(found), self.distribution)
        return {inside: self._whole(inside) for inside in found}

    def hashes(self) -> Dict[str, Entry]:
        """Path inside an environment → what its RECORD says of it; without what each installer writes anew."""
        entries = read_record(Path(self.site.packages, self.info, "RECORD")).entries
        own = self._installers_own()
        return {self.site.inside(one.path): one for one in entries if one.digest and one.path not in own}

    def _installers_own(self) -> Set[str]:
        return {f"{self.info}/{name}" for name in INSTALLERS_OWN}

    def _whole(self, inside: str) -> str:
        """The file itself, where a link leads to it from inside; out of the source no link may lead."""
        file = self.site.file(inside)
        if not os.path.islink(file):
            return file
        real, root = os.path.realpath(file), os.path.realpath(self.site.environment)
        if not real.startswith(root + "/"):
            raise self.refused(f"{shown(inside)} is a link that leads out of it", real)
        return real

    def require_record(self, came: Optional[str], planned: Optional[str]) -> None:
        """Refuse where another RECORD came than the one that was ``planned`` (None: any)."""
        if planned is not None and came != planned:
            what = "it was changed since this was planned: its RECORD is another one; run it again"
            raise self.refused(what, f"planned {planned[:12]}, came {(came or 'none')[:12]}")

    def refused(self, what: str, evidence: str) -> AgentError:
        """The error for a distribution that cannot be taken from here."""
        return AgentError(
            f"{self.distribution} cannot be taken from {shown(self.site.environment)}: {what}",
            where=shown(self.site.environment),
            fix="see what is there with `fleetctl env capture`, and name another source",
            evidence=[shown(evidence)] if evidence else [],
            exit=PREFLIGHT,
        )


class Overlay:
    """One distribution's change: ``removed`` and ``added`` are paths relative to the environment."""

    def __init__(self, site: Site, source: Source, method: str, proof: Proof) -> None:
        self.site = site
        self.proof = proof
        self.source = source
        self.method = method
        self.removed: Set[str] = set()
        self.added: Set[str] = set()
        self._folders: Set[str] = set()

    def apply(self, coming: Dict[str, str]) -> None:
        """Remove the old distribution, bring the new one's files (:meth:`Source.files`).

        Errors leave the environment half changed.
        """
        name = canonical(self.source.distribution)
        infos = self.site.infos()
        others = self._others({info for known, listed_ in infos.items() if known != name for info in listed_})
        for info in infos.get(name, []):
            self._remove(info, others)
        for inside, file in coming.items():
            self._add(inside, file, others)
            if inside.endswith(".py"):
                self._add_compiled(inside, file)
        require_no_nested(self.site, set(coming), name)
        self._require_hashes()

    def _require_hashes(self) -> None:
        """What lies there now is what the RECORD says, whatever happened to it on its way."""
        wanted = self.source.hashes()
        paths = [path for path in sorted(self.added) if path in wanted]
        jobs = []
        for path in paths:
            file = f"{self.site.environment}/{path}"
            jobs.append(Job(file, wanted[path].algorithm, os.stat(file).st_size))
        answers = read_all(jobs, lambda done, total: None)
        other = [path for path, answer in zip(paths, answers) if answer.digest != wanted[path].digest]
        if other:
            raise self.source.refused(
                f"{len(other)} of its files {'is' if len(other) == 1 else 'are'} not what its RECORD says: "
                f"{listed(other)}",
                " ".join(other[:20]),
            )

    def _others(self, infos: Set[str]) -> Dict[str, str]:
        """Path → the ``.dist-info`` of another distribution that owns it; one without RECORD owns nothing."""
        owners: Dict[str, str] = {}
        for info in infos:
            if os.path.exists(f"{self.site.packages}/{info}/RECORD"):
                owners.update(dict.fromkeys(self.site.files(info), info))
        return owners

    def _remove(self, info: str, others: Dict[str, str]) -> None:
        folders = set()
        for inside in self.site.files(info) - others.keys():
            if is_scaffold(inside):
                continue
            file = f"{self.site.environment}/{inside}"
            forget_compiled(file)
            if os.path.lexists(file) and not (os.path.isdir(file) and not os.path.islink(file)):
                os.unlink(file)
                self.removed.add(inside)
            folders.add(os.path.dirname(file))
        for leftover in Path(self.site.packages, info).glob("*"):
            if leftover.is_file() or leftover.is_symlink():
                leftover.unlink()
        folders.add(f"{self.site.packages}/{info}")
        for folder in sorted(folders, key=len, reverse=True):
            prune_empty(folder, self.site.environment)

    def _add(self, inside: str, file: str, others: Dict[str, str]) -> None:
        target = f"{self.site.environment}/{inside}"
        if inside in others and os.path.exists(target):
            if filecmp.cmp(file, target, shallow=False):
                return
            raise self.source.refused(f"{shown(inside)} is also {others[inside]}'s, with other content", "")
        self._make_folder(inside)
        if os.path.isdir(target) and not os.path.islink(target):
            raise self.source.refused(f"a folder stands where {shown(inside)} belongs", "")
        forget_compiled(target)
        place(file, target + SUFFIX, self.method)
        os.replace(target + SUFFIX, target)
        self.added.add(inside)

    def _make_folder(self, inside: str) -> None:
        """The folder of a file, which no link leads away from where its RECORD says."""
        folder = os.path.dirname(inside)
        if folder in self._folders:
            return
        place = f"{self.site.environment}/{folder}"
        try:
            os.makedirs(place, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise self.source.refused(f"a file stands where {shown(inside)} needs a folder", "") from None
        if os.path.realpath(place) != os.path.join(os.path.realpath(self.site.environment), folder).rstrip(
            "/"
        ):
            raise self.source.refused(f"a link leads away from where {shown(inside)} belongs", "")
        self._folders.add(folder)

    def _add_compiled(self, inside: str, file: str) -> None:
        """Byte code from there, where fleetctl compiled it and the source keeps its time."""
        folder, name = os.path.split(file)
        for compiled in Path(folder, "__pycache__").glob(glob_escaped(name[:-3]) + ".*.pyc"):
            target = Path(self.site.environment, os.path.dirname(inside), "__pycache__", compiled.name)
            if self.proof.compiled_by_fleetctl(compiled.stat()) and not target.exists():
                target.parent.mkdir(exist_ok=True)
                place(str(compiled), str(target), self.method)


def require_no_nested(site: Site, owned: Set[str], distribution: str) -> None:
    """Refuse a package that holds an unowned copy of itself (``sglang/sglang/__init__.py``)."""
    lead = site.lead + "/"
    tops = {
        path[len(lead) :].split("/")[0]
        for path in owned
        if path.startswith(lead) and "/" in path[len(lead) :]
    }
    nested: List[str] = []
    for top in sorted(tops):
        copy = f"{lead}{top}/{top}/__init__.py"
        if copy not in owned and os.path.exists(site.file(copy)):
            nested.append(os.path.dirname(copy))
    if nested:
        raise AgentError(
            f"{distribution} holds a nested copy of itself, which no RECORD names: {listed(nested)}",
            where=shown(site.environment),
            fix="remove the nested folder there, or take it from a source that has none",
            evidence=[shown(path) for path in nested],
            exit=PREFLIGHT,
        )
