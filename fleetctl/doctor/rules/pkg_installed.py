"""PKG: distributions that are there twice, in the wrong place, or not as they were installed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.rule import Context, Found, rule
from fleetctl.doctor.stack import EVIDENCE, KERNELS, engine, first, required, titled, view
from fleetctl.environment.stacks import INSTALLERS, OF_THEIR_OWN, cuda_major, is_toolkit
from fleetctl.environment.view import View

# Two names of one package: each installs the other's files.
SAME_FILES = (
    ("sgl-kernel", "sglang-kernel"),
    ("triton", "pytorch-triton"),
    ("pynvml", "nvidia-ml-py"),
    ("opencv-python", "opencv-python-headless"),
)


@rule(
    "pkg-nested-copy",
    "error",
    reason="A copy of a package inside itself is what a copy to the wrong place leaves: which of the two is imported "
    "depends on the folder that a program starts in.",
    source="seen on the first hosts (sglang/sglang/srt)",
)
def nested_copy(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    site = next(iter(here.bom.get("site_packages") or ()), "")
    for inner in map(here.inside, here.nested):
        outer, whole = inner.rpartition("/")[0], "/".join(filter(None, (here.path, site, inner)))
        commands = (f"rm -r {shlex.quote(whole)}",)
        remedy = Remedy(f"remove {inner}, and put {outer} back from its wheel", commands=commands)
        yield Found(f"a copy of {outer} lies inside itself", inner, [whole], remedy)


@rule(
    "pkg-twice",
    "error",
    reason="Of a distribution that is there twice, files of both versions lie over each other.",
    source="importlib.metadata: the first dist-info found is the version that is told; env verify",
)
def twice(context: Context) -> Iterator[Found]:
    here = view(context)
    for one in here.bom.get("twice") or () if here else ():
        versions = [str(version) for version in one.get("versions") or ()]
        what = f"{one.get('name')} is installed twice: {' and '.join(versions)}"
        remedy = Remedy(f"remove both and install {one.get('name')} again from its wheel")
        severity: Severity = "error" if len(set(versions)) > 1 else "warning"
        yield Found(
            what, str(one.get("name")), [str(info) for info in one.get("infos") or ()], remedy, severity
        )


@rule(
    "pkg-same-files",
    "warning",
    reason="Two distributions that install the same files overwrite each other; removing one breaks the other.",
    source="the wheels' RECORDs: sgl_kernel is in sgl-kernel and in sglang-kernel, triton in triton and "
    "pytorch-triton",
)
def same_files(context: Context) -> Iterator[Found]:
    here = view(context)
    for one, other in SAME_FILES if here else ():
        if here and one in here.versions and other in here.versions:
            what = f"{titled(here, one)} and {titled(here, other)} install the same files"
            severity: Severity = "error" if one in KERNELS else "warning"
            yield Found(what, one, (), Remedy("remove both, then install the one that is wanted"), severity)


@rule(
    "pkg-two-cuda",
    "warning",
    reason="Libraries of two CUDA toolkits: which is loaded depends on the order of imports, and packages such as "
    "nvidia-cudnn-cu12 and nvidia-cudnn-cu13 install the same files.",
    source="torch's Requires-Dist of cu128 and cu130; the wheels' RECORDs (nvidia/cudnn/lib); env verify",
)
def two_cuda(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    by_major: dict[int, list[str]] = {}
    for name in here.versions:
        major = _major_of(here, name)
        if major:
            by_major.setdefault(major, []).append(name)
    if len(by_major) < 2:
        return
    keep = here.cuda if here.cuda in by_major else max(by_major)
    others = sorted(name for major, names in by_major.items() if major != keep for name in names)
    shared = [stem for stem in OF_THEIR_OWN.values() if sum(_begins(here, stem)) > 1]
    what = f"NVIDIA's libraries of CUDA {' and '.join(map(str, sorted(by_major)))} are in one environment"
    what += f"; {first(shared)} of both lie over each other" if shared else ""
    asked = [one for one in here.distributions if any(required(here, one, name) for name in others)]
    lines = [f"CUDA {major}: {first(sorted(names), EVIDENCE)}" for major, names in sorted(by_major.items())]
    lines += [f"required by {first(asked)}"] if asked else []
    text = f"remove those that torch {here.torch} does not use" + (
        f", and install {first(shared)}-cu{keep} again" if shared else ""
    )
    commands = () if asked else (f"pip uninstall {' '.join(others)}",)
    severity: Severity = "error" if shared else "info" if asked else "warning"
    yield Found(what, "nvidia", lines, Remedy(text, commands=commands), severity)


@rule(
    "pkg-missing-files",
    "error",
    reason="Files that a distribution's RECORD names and that are gone are what a broken copy or a full disk leaves.",
    source="the distributions' RECORDs; env verify",
)
def missing_files(context: Context) -> Iterator[Found]:
    here = view(context)
    yield from _drift(context, here, "missing", "are missing of") if here else ()


@rule(
    "pkg-changed-files",
    "info",
    reason="Files that are not as their wheel installed them: a patch, or a hand; a later install takes it away.",
    source="the distributions' RECORDs; env verify; `fleetctl patch create` keeps such changes",
)
def changed_files(context: Context) -> Iterator[Found]:
    here = view(context)
    yield from _drift(context, here, "changed", "differ from what was installed of") if here else ()


def _drift(context: Context, here: View, key: str, said: str) -> Iterator[Found]:
    using = engine(context, here)
    for name, entry in here.distributions.items():
        count = entry.get(f"{key}_count") or len(entry.get(key) or ())
        if not count or name in INSTALLERS:
            continue
        what = f"{count} file{'s' if count > 1 else ''} {said} {titled(here, name)}"
        what = what if count > 1 else what.replace(" are ", " is ").replace(" differ ", " differs ")
        if key == "missing":
            matters = name in (using, "torch", *KERNELS)
            remedy = Remedy(
                f"install {name} again from its wheel", packages=(f"{name}=={here.versions[name]}",)
            )
            yield Found(
                what, name, list(entry.get(key) or ())[:EVIDENCE], remedy, "error" if matters else "warning"
            )
        else:
            remedy = Remedy("keep the change as a patch set (`fleetctl patch create`), or install it again")
            yield Found(what, name, list(entry.get(key) or ())[:EVIDENCE], remedy)


def _major_of(here: View, name: str) -> int | None:
    """The CUDA major of a part of the toolkit: by its name's ending, else by its libraries."""
    if not is_toolkit(name) or not name.startswith("nvidia-"):
        return None
    majors = here.majors(name)
    return cuda_major(name, here.versions[name]) or (max(majors) if majors else None)


def _begins(here: View, stem: str) -> list[bool]:
    return [name.startswith(f"{stem}-cu") for name in here.versions]
