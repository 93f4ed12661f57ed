"""Compare an environment's files with what its distributions' RECORDs say of them."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from fleetctl.agent.capture.distributions import Distribution
from fleetctl.agent.capture.reader import Answer, Job, read_all
from fleetctl.agent.capture.tree import File, Problems, Tree
from fleetctl.agent.capture.wheel_record import leaves, normal


class Drift(NamedTuple):
    """Of one distribution: its files' number and bytes, and its paths that differ (each with its digest now)
    or are not there.
    """

    files: int
    bytes: int
    changed: Dict[str, str]
    missing: List[str]


class Checked(NamedTuple):
    """``drift`` by the distribution's info folder; the sha256 of each file of ``code``; files and bytes read."""

    drift: Dict[str, Drift]
    code: Dict[str, str]
    files: int
    bytes: int


def check(
    tree: Tree,
    distributions: Sequence[Distribution],
    code: Sequence[str],
    hashes: bool,
    problems: Problems,
    on_bytes: Callable[[int, int], None],
) -> Checked:
    """Hash what the RECORDs name and the unowned ``code``; without ``hashes`` only what has another size."""
    files = {path: tree.files[path] for path in code}
    wanted: Dict[Tuple[str, str], None] = {(path, "sha256"): None for path in code}
    for one in distributions:
        for path, entry in one.owned.items():
            found = tree.look(path)
            if found is not None:
                files[path] = found
                if entry.digest and (hashes or entry.size not in (-1, found.size)):
                    wanted[(path, entry.algorithm)] = None
    keys = list(wanted)
    jobs = [Job(tree.absolute(path), algorithm, files[path].size) for path, algorithm in keys]
    answers = dict(zip(keys, read_all(jobs, on_bytes)))
    digests = _digests(answers, files, problems)
    drift = {one.info: _drift(one, tree, files, digests) for one in distributions}
    hashed = {path: digests[(path, "sha256")] for path in code if (path, "sha256") in digests}
    return Checked(drift, hashed, len(jobs), sum(job.size for job in jobs))


def _digests(
    answers: Dict[Tuple[str, str], Answer], files: Dict[str, File], problems: Problems
) -> Dict[Tuple[str, str], str]:
    digests: Dict[Tuple[str, str], str] = {}
    for (path, algorithm), answer in answers.items():
        walked = files[path]
        if answer.digest is None:
            problems.add(path, f"cannot be read: {answer.error}")
            continue
        if (answer.size, answer.mtime_ns) != (walked.size, walked.mtime_ns):
            problems.add(path, "changed while the environment was captured")
        digests[(path, algorithm)] = answer.digest
    return digests


def _drift(
    one: Distribution, tree: Tree, files: Dict[str, File], digests: Dict[Tuple[str, str], str]
) -> Drift:
    there = [path for path in one.owned if path in files]
    changed: Dict[str, str] = {}
    for path in there:
        entry = one.owned[path]
        now = digests.get((path, entry.algorithm))
        if now is not None and now != entry.digest:
            changed[path] = now
    missing = sorted(path for path in one.owned if path not in files and path not in tree.refused)
    return Drift(len(there), sum(files[path].size for path in there), dict(sorted(changed.items())), missing)


def content(one: Distribution, drift: Drift) -> List[str]:
    """The lines of the environment's digest that tell one distribution's content from another's.

    Scripts beside site-packages are left out: their first line names the environment.
    """
    lines = [f"distribution {one.name} {one.version} {one.record_sha256}"]
    if one.record.state != "ok":
        lines.append(f"record {one.name} {one.version} {one.record.state} {one.record.why}")
    for path, digest in drift.changed.items():
        entry = one.owned[path]
        if not leaves(normal(entry.path)):
            lines.append(f"changed {one.name} {normal(entry.path)} {digest}")
    for path in drift.missing:
        written = normal(one.owned[path].path)
        if not leaves(written):
            lines.append(f"missing {one.name} {written}")
    return lines
