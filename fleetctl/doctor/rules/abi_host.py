"""ABI: libraries against the host's system, processor and Python; and environments that hold no working one."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.rule import Context, Found, rule
from fleetctl.doctor.stack import EVIDENCE, capabilities, first, libraries, severity_of, titled, torch, view
from fleetctl.environment.view import Entry, View, dotted, numbers

LOADER = "ld.so(8); the libraries' own ELF headers"
SYSTEM = ("glibc", "GLIBC"), ("glibcxx", "GLIBCXX")


@rule(
    "abi-glibc",
    "error",
    reason="A library that wants a newer glibc or libstdc++ than the host has is refused by the loader.",
    source="the libraries' version tables (GLIBC_, GLIBCXX_); PEP 600",
)
def system_versions(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    for owner, entries in libraries(here):
        for entry in entries:
            newer = list(_newer(here, context, entry))
            if newer:
                what = f"{titled(here, owner)} wants {first(newer)}"
                text = (
                    f"a build of {owner} for an older system (its manylinux tag), or a host with a newer one"
                )
                yield Found(what, here.inside(entry["path"]), newer, Remedy(text), severity_of(owner))
                break


@rule(
    "abi-python-tag",
    "error",
    reason="An extension module is loaded only by the Python minor that its name says, or by any where it says abi3.",
    source="PEP 3149, PEP 425",
)
def python_tag(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None or not here.tag:
        return
    for owner, entries in here.by_owner.items():
        tagged = [entry for entry in entries if entry.get("tag")]
        if tagged and all(entry["tag"] not in ("abi3", here.tag) for entry in tagged):
            built = first(sorted({str(entry["tag"]) for entry in tagged}))
            what = f"{titled(here, owner)} is built for {built}, the Python here is {here.tag}"
            remedy = Remedy(f"install {owner} for {here.tag}, or use the Python that it is for")
            lines = [here.inside(entry["path"]) for entry in tagged[:EVIDENCE]]
            yield Found(what, lines[0], lines, remedy, severity_of(owner))


@rule(
    "abi-machine",
    "error",
    reason="A library of another processor architecture does not load.",
    source=LOADER,
)
def machine(context: Context) -> Iterator[Found]:
    here = view(context)
    arch = str(context.facts.get("arch") or (here.arch if here else ""))
    if here is None or not arch:
        return
    for owner, entries in libraries(here):
        other = {entry.get("machine") for entry in entries} - {None, "", arch}
        if other and len({entry.get("machine") for entry in entries}) == 1:
            what = f"{titled(here, owner)} is for {first(sorted(map(str, other)))}, the host is {arch}"
            remedy = Remedy(f"install {owner} from a wheel for {arch}")
            yield Found(what, here.inside(entries[0]["path"]), (), remedy, severity_of(owner))


@rule(
    "abi-unreadable",
    "error",
    reason="A library that is cut or is no library at all is what a broken copy leaves.",
    source="the file's own ELF header and tables",
)
def unreadable(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    for owner, entries in libraries(here):
        for entry in entries:
            if entry["error"]:
                what = f"a library of {titled(here, owner)} cannot be read: {entry['error']}"
                remedy = Remedy(f"install {owner} again from its wheel")
                yield Found(what, here.inside(entry["path"]), (), remedy, severity_of(owner))


@rule(
    "abi-interpreter",
    "error",
    reason="A venv starts the Python that it was made with; where that is gone nothing of it runs.",
    source="PEP 405; seen on the first hosts: /root/venv_sglang, links to a system's Python",
    remedy="install that Python on the host, or make the environment anew",
)
def interpreter(context: Context) -> Iterator[Found]:
    here = view(context)
    python = here.bom["python"] if here else {}
    if python.get("path") and python.get("runs") is False:
        real = [f"it is {python['real']}"] if python.get("real") else []
        yield Found(
            f"the interpreter does not run: {python.get('why') or 'no reason is known'}",
            str(python["path"]),
            real,
        )


@rule(
    "abi-torch-cpu",
    "error",
    reason="A torch built without CUDA sees no GPU, and kernel packages find no libraries beside it.",
    source="PyTorch, Get started: the index of a build is in its local version (+cpu)",
)
def torch_without_cuda(context: Context) -> Iterator[Found]:
    here = view(context)
    local = (torch(here) or "").partition("+")[2] if here else ""
    on_processors = context.service is not None and context.service.engine == "standalone"
    if here is None or local != "cpu" or on_processors or not capabilities(context):
        return
    remedy = Remedy(
        "install torch for CUDA from its index (cu130 or cu128), with torchvision and torchaudio",
        commands=("pip install --index-url https://download.pytorch.org/whl/cu130 torch",),
    )
    severity: Severity = "error" if context.service and context.service.engine != "other" else "warning"
    yield Found(f"torch {torch(here)} has no CUDA", "torch", (), remedy, severity)


def _newer(here: View, context: Context, entry: Entry) -> Iterator[str]:
    """``GLIBC 2.38, the host has 2.35``: as the capture resolved it, else by comparing with the host."""
    if entry.get("versions"):
        yield from (one.replace(", there is ", ", the host has ") for one in entry["versions"])
        return
    for key, name in SYSTEM:
        has = here.platform(key) or numbers(context.facts.get(key))
        wants = numbers(entry.get(key))
        bundled = key == "glibcxx" and any("libstdc++" in one for one in here.sonames)
        if has and wants > has and not bundled:
            yield f"{name} {dotted(wants)}, the host has {dotted(has)}"
