"""CFG, draft trees: what the patch set for DDTREE refuses at start, and what makes its trees wrong or dear."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.known import (
    DDTREE_RELEASES,
    algorithm,
    block_size,
    capability,
    cards,
    config,
    has,
    is_ddtree,
    is_hybrid,
    listed,
    modules,
    number,
    sglang,
    text,
    version,
    whole,
)
from fleetctl.doctor.rule import Context, Found, ServiceView, rule
from fleetctl.inventory.models import Argument
from fleetctl.inventory.nearest import nearest
from fleetctl.services.engines import ENGINES

ARGUMENTS = "arguments"
FLAG = "speculative-ddtree-"
SET = "ddtree-sglang-0.5.11"
LINEAR = ("linear-attn-backend", "linear-attn-decode-backend", "linear-attn-prefill-backend")
PARTS = frozenset(
    f"ddtree_{name}"
    for name in (
        "args",
        "check",
        "commit",
        "graphs",
        "info",
        "kernels",
        "metrics",
        "passes",
        "utils",
        "worker",
    )
)
"""The modules that the patch set brings."""
WINDOWED = ("Afmoe", "Exaone4", "Gemma2", "Gemma3", "Gemma4", "GptOss", "Olmo")
"""How architectures begin whose attention SGLang 0.5.11 gives a sliding window, where their configuration has one."""
UNSUPPORTED = (
    "speculative-dflash-draft-window-size",
    "enable-two-batch-overlap",
    "enable-deterministic-inference",
)


@rule(
    "pkg-ddtree-version",
    "error",
    reason="A patch set is for exact releases: each of its files is checked before and after, and on another release "
    "nothing is applied.",
    source=f"runtime_patches/{SET}: manifest.yaml; no release of SGLang has DDTREE",
    remedy=Remedy(
        f"sglang {DDTREE_RELEASES[-1]} with the patch set {SET}: `spec: sglang-0.5.11-ddtree` in the inventory's "
        "environments, or `fleetctl patch apply`",
        packages=(f"sglang=={DDTREE_RELEASES[-1]}",),
    ),
)
def release(context: Context) -> Iterator[Found]:
    service, found = sglang(context), version(context.bom, "sglang")
    if service is None or found is None or algorithm(service) != "DDTREE" or str(found) in DDTREE_RELEASES:
        return
    there = modules(context.bom, "sglang") or {}
    if not any("ddtree_worker" in names for names in there.values()):
        what = f"draft trees are asked of sglang {found}; their patch set is for {listed(DDTREE_RELEASES)}"
        yield Found(what, service.environment, [f"sglang {found}", "--speculative-algorithm DDTREE"])


@rule(
    "pkg-ddtree-parts",
    "warning",
    reason="Modules copied in by hand, or left by an older set, fit neither each other nor the changed files.",
    source=f"runtime_patches/{SET}: manifest.yaml; seen on the first hosts: files copied one by one",
    remedy="`fleetctl patch status` says what each file is; `fleetctl patch apply` on an environment as released makes "
    "it whole",
)
def parts(context: Context) -> Iterator[Found]:
    service, found = sglang(context), version(context.bom, "sglang")
    there = {str(name) for names in (modules(context.bom, "sglang") or {}).values() for name in names}
    mine = {name for name in there if name.startswith("ddtree_")}
    if service is None or not is_ddtree(service) or not mine or str(found) not in DDTREE_RELEASES:
        return
    lacks = sorted(PARTS - mine)
    if lacks:
        what = f"the environment has {len(mine)} of the draft trees' {len(PARTS)} modules"
        yield Found(
            what, service.environment, [f"there: {listed(sorted(mine))}", f"not there: {listed(lacks)}"]
        )


@rule(
    "cfg-ddtree-flags",
    "error",
    reason="A flag that the patch set does not know ends the start with status 2, a value that it cannot use with a "
    "sentence that says why; both after the old service was stopped.",
    source=f"runtime_patches/{SET}: ddtree_args",
    remedy="correct the argument, or take it out",
)
def flags(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not is_ddtree(service):
        return
    settings = {one.argument: one for one in ENGINES["sglang"].settings.values()}
    known = [name for name in settings if name.startswith(FLAG)] + [f"{FLAG}mode", f"{FLAG}log-trees"]
    for name, value in service.arguments.items():
        if not name.startswith(FLAG) or value is False:
            continue
        if name not in known:
            near = nearest(name, known)
            remedy = Remedy(f"did you mean --{near}?" if near else f"known: {listed(known)}")
            yield Found(f"DDTREE has no --{name}", ARGUMENTS, [f"--{name}"], remedy)
        elif name in settings and (wanted := settings[name].refuses(_typed(value))):
            yield Found(f"--{name} is {value}; it must be {wanted}", ARGUMENTS, [f"--{name} {value}"])
    yield from _depth(context, service)
    given = [f"--{name}" for name in UNSUPPORTED if has(service, name)]
    if text(service, "disaggregation-mode") not in ("", "null"):
        given.append(f"--disaggregation-mode {text(service, 'disaggregation-mode')}")
    if given:
        yield Found(f"draft trees do not go with {listed(given)} yet", ARGUMENTS, given)


def _typed(value: Argument) -> Argument:
    """A number that an ``ExecStart=`` holds as text is one."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value) if isinstance(value, str) else value
    return value


def _depth(context: Context, service: ServiceView) -> Iterator[Found]:
    block, depth = block_size(context, service), number(service, f"{FLAG}max-depth")
    if depth is not None and depth > block - 1:
        seen = [f"--{FLAG}max-depth {depth:.0f}", f"block size {block}"]
        remedy = Remedy(f"--{FLAG}max-depth {block - 1}", arguments={f"{FLAG}max-depth": block - 1})
        what = f"trees of depth {depth:.0f} are asked of a drafter of {block - 1} tokens"
        yield Found(what, ARGUMENTS, seen, remedy)


@rule(
    "cfg-ddtree-page-size",
    "error",
    reason="DDTree gives back the slots of rejected branches one by one, which pages of several tokens do not allow.",
    source="seen on the first hosts; sglang PR 29907",
    remedy=Remedy("--page-size 1", arguments={"page-size": 1}),
)
def page_size(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service and is_ddtree(service) and whole(service, "page-size") > 1:
        yield Found("DDTree needs --page-size 1", ARGUMENTS, [f"--page-size {text(service, 'page-size')}"])


@rule(
    "cfg-tree-backend",
    "error",
    reason="A draft tree needs an attention mask of its own; the patch set gives it to the triton backend and refuses "
    "the others at start, in every mode of DDTREE.",
    source="runtime_patches/ddtree-sglang-0.5.11: ddtree_args; read in the released wheels",
    remedy=Remedy("--attention-backend triton", arguments={"attention-backend": "triton"}),
)
def tree_backend(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not is_ddtree(service):
        return
    passes = ("prefill-attention-backend", "decode-attention-backend")
    common = text(service, "attention-backend")
    wrong = {flag: chosen for flag in passes if (chosen := text(service, flag) or common) != "triton"}
    if not wrong:
        return
    given = [
        f"--{flag} {text(service, flag)}" for flag in ("attention-backend", *passes) if text(service, flag)
    ]
    remedy = Remedy("--attention-backend triton", arguments={"attention-backend": "triton"})
    own = [flag for flag in passes if text(service, flag) not in ("", "triton")]
    if own:
        remedy = Remedy(" ".join(f"--{flag} triton" for flag in own), arguments=dict.fromkeys(own, "triton"))
    named = sorted({chosen or "the one that SGLang chooses" for chosen in wrong.values()})
    what = f"draft trees need the triton attention backend, not {listed(named)}"
    yield Found(what, ARGUMENTS, given or ["--attention-backend is not given"], remedy)


@rule(
    "cfg-ddtree-window",
    "error",
    reason="A tree's nodes lie behind one another in the cache, not in the text: a sliding window would leave out the "
    "wrong ones. The patch set refuses such targets once their weights are loaded.",
    source=f"runtime_patches/{SET}: ddtree_worker; get_attention_sliding_window_size in sglang 0.5.11's models",
    remedy=Remedy("the mode linear or shadow for this model"),
)
def window(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not is_ddtree(service) or text(service, "speculative-ddtree-mode") == "shadow":
        return
    known = config(context, service.model)
    named = [str(name) for name in known.get("architectures") or []]
    if known.get("sliding_window") and any(name.startswith(WINDOWED) for name in named):
        seen = [f"{listed(named)}, sliding_window {known['sliding_window']}"]
        yield Found(
            "draft trees cannot be verified by a target with sliding-window attention yet",
            service.model or "model",
            seen,
        )


@rule(
    "cfg-hybrid-unsafe",
    "warning",
    reason="With this flag sibling branches see each other's recurrent state: what is committed is not what the model "
    "would have said.",
    source="seen on the first hosts (acceptance fell at budget 32); measured on an H200: 72 to 96% of the nodes get a "
    "wrong state (docs/ddtree.md)",
    remedy=Remedy(
        "--speculative-ddtree-hybrid fork, the default", arguments={"speculative-ddtree-hybrid": "fork"}
    ),
)
def hybrid_unsafe(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not is_ddtree(service) or text(service, "speculative-ddtree-hybrid") != "unsafe":
        return
    known = config(context, service.model)
    severity: Severity = "info" if known and not is_hybrid(known) else "warning"
    what = "the service is allowed to give wrong text on a hybrid model"
    yield Found(what, ARGUMENTS, ["--speculative-ddtree-hybrid unsafe"], severity=severity)


@rule(
    "cfg-ddtree-budget",
    "warning",
    reason="A verify pass costs by its nodes: beyond block size − 1 it costs more than the chain's, and without a "
    "second choice per depth it is the chain.",
    source="measured on the first hosts (budget 16 lost to 15); the DDTree paper; on an H200 with a target of 135M "
    "parameters 32 nodes cost no more than 15 (docs/ddtree.md)",
    remedy="measure budgets against the chain (block size − 1, then 22 for a block of 16), with CUDA graphs in both",
)
def budget(context: Context) -> Iterator[Found]:
    service = sglang(context)
    nodes = number(service, "speculative-ddtree-budget") if service else None
    if service is None or not is_ddtree(service) or nodes is None:
        return
    block, hybrid = block_size(context, service), is_hybrid(config(context, service.model))
    seen = [f"--speculative-ddtree-budget {nodes:.0f}", f"block size {block}"]
    if nodes < 1:
        yield Found(f"a budget of {nodes:.0f} drafts nothing", ARGUMENTS, seen)
    elif nodes >= 2 * block and hybrid:
        what = f"a budget of {nodes:.0f} on a hybrid model: each node is a recurrent step, one after another"
        yield Found(what, ARGUMENTS, seen)
    elif nodes > block - 1:
        what = f"a budget of {nodes:.0f} makes a verify pass dearer than the chain's of {block}"
        yield Found(what, ARGUMENTS, seen, severity="info")
    elif whole(service, "speculative-ddtree-topk", 2) == 1:
        yield Found(
            "a tree with one choice per depth is the chain", ARGUMENTS, ["--speculative-ddtree-topk 1"]
        )


@rule(
    "cfg-hybrid-linear-backend",
    "error",
    reason="FlashInfer's kernel for recurrent layers knows no parents: a tree's verify pass raises.",
    source="read in the released wheels: gdn_flashinfer.py wants retrieve_parent_token None",
    remedy="--linear-attn-backend triton",
)
def linear_backend(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not is_ddtree(service) or not is_hybrid(config(context, service.model)):
        return
    given = {flag: chosen for flag in LINEAR if (chosen := text(service, flag)) not in ("", "triton")}
    kind, blackwell = (
        text(service, "mamba-ssm-dtype"),
        any((capability(card) or (0,))[0] >= 10 for card in cards(context)),
    )
    by_default = kind == "bfloat16" and blackwell and not any(text(service, flag) for flag in LINEAR)
    if not given and not by_default:
        return
    seen = [f"--{flag} {chosen}" for flag, chosen in given.items()]
    flags = list(given) or ["linear-attn-backend"]
    remedy = Remedy(" ".join(f"--{flag} triton" for flag in flags), arguments=dict.fromkeys(flags, "triton"))
    what = "draft trees on a hybrid model need the triton kernels for its recurrent layers"
    yield Found(what, ARGUMENTS, seen or ["--mamba-ssm-dtype bfloat16 chooses flashinfer here"], remedy)
