"""CFG: arguments that contradict each other, the mode, the model or the cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from packaging.version import Version

from fleetctl.doctor.finding import Remedy
from fleetctl.doctor.known import (
    DDTREE_RELEASES,
    algorithm,
    capability,
    cards,
    config,
    has,
    is_ddtree,
    is_hybrid,
    listed,
    modules,
    sglang,
    text,
    version,
    whole,
)
from fleetctl.doctor.rule import Context, Found, rule

ARGUMENTS = "arguments"
DFLASH_SINCE = Version("0.5.11")
BLOCK_ALGORITHMS = ("DFLASH", "DDTREE")
BACKENDS = (
    "attention-backend",
    "prefill-attention-backend",
    "decode-attention-backend",
    "speculative-draft-attention-backend",
)
FA3_MAJORS = (8, 9)
SM100_ONLY = ("trtllm_mha", "trtllm_mla", "fa4", "cutlass_mla")


@rule(
    "cfg-hybrid-radix",
    "error",
    reason="A hybrid model's recurrent state cannot be taken back when drafts are rejected, unless the radix cache "
    "keeps extra buffers or is off.",
    source="sglang PR 22908; seen with sglang 0.5.11 on an H200",
    remedy=Remedy(
        "--disable-radix-cache, or --mamba-scheduler-strategy extra_buffer (keeps the cache)",
        arguments={"disable-radix-cache": True},
    ),
)
def hybrid_radix(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not algorithm(service) or not is_hybrid(config(context, service.model)):
        return
    strategy = (
        text(service, "mamba-scheduler-strategy") or text(service, "mamba-radix-cache-strategy") or "auto"
    )
    if not has(service, "disable-radix-cache") and not strategy.startswith("extra_buffer"):
        seen = [f"model_type {config(context, service.model).get('model_type')}", algorithm(service)]
        yield Found(
            "a hybrid model with speculation and the radix cache is refused at start",
            ARGUMENTS,
            [*seen, f"--mamba-scheduler-strategy {strategy}"],
        )


@rule(
    "cfg-hybrid-buffer",
    "error",
    reason="The extra buffers belong to the radix cache: with it off they are refused.",
    source="sglang PR 19169",
    remedy="take one of the two out: --disable-radix-cache or --mamba-scheduler-strategy extra_buffer",
)
def hybrid_buffer(context: Context) -> Iterator[Found]:
    service = sglang(context)
    strategy = text(service, "mamba-scheduler-strategy") if service else ""
    if service and strategy.startswith("extra_buffer") and has(service, "disable-radix-cache"):
        seen = ["--disable-radix-cache", f"--mamba-scheduler-strategy {strategy}"]
        yield Found("extra buffers are asked for, and the radix cache that has them is off", ARGUMENTS, seen)


@rule(
    "cfg-fa3-on-sm120",
    "error",
    reason="FlashAttention 3 in sgl_kernel is built for Hopper and Ampere; on other cards its first call fails.",
    source="sglang#15342, gpustack#3326",
    remedy=Remedy(
        "--attention-backend triton (or flashinfer with a CUDA toolkit of 12.9 or later)",
        arguments={"attention-backend": "triton"},
    ),
)
def flash_attention(context: Context) -> Iterator[Found]:
    yield from _backend(context, ("fa3",), lambda major: major not in FA3_MAJORS, "is for SM 8.x and 9.x")


@rule(
    "cfg-backend-on-sm120",
    "error",
    reason="These attention kernels exist for data-centre Blackwell (SM 10.x) only; SM 12.x is another family.",
    source="sglang#24633, flashinfer#3263, flashinfer#5445; read in the released wheels",
    remedy=Remedy("--attention-backend triton", arguments={"attention-backend": "triton"}),
)
def blackwell_backend(context: Context) -> Iterator[Found]:
    yield from _backend(context, SM100_ONLY, lambda major: major >= 12, "is for SM 10.x")


def _backend(
    context: Context, names: tuple[str, ...], fails: Callable[[int], bool], why: str
) -> Iterator[Found]:
    service = sglang(context)
    unfit = [card for card in cards(context) if (found := capability(card)) and fails(found[0])]
    for flag in BACKENDS if service else ():
        chosen = text(service, flag) if service else ""
        if chosen in names and unfit:
            seen = [
                f"--{flag} {chosen}",
                *(f"GPU {card.get('index')}: SM {card.get('compute_cap')}" for card in unfit),
            ]
            remedy = Remedy(f"--{flag} triton", arguments={flag: "triton"})
            yield Found(f"--{flag} {chosen} {why}", ARGUMENTS, seen[:5], remedy)


@rule(
    "cfg-dflash-parallel",
    "error",
    reason="DFlash reads hidden states of chosen layers in one process: pipeline stages and DP attention split them.",
    source="read in the released wheels; seen with sglang 0.5.11 on an H200",
    remedy="one pipeline stage and no --enable-dp-attention; tensor parallelism works",
)
def parallel(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or algorithm(service) not in BLOCK_ALGORITHMS:
        return
    stages = whole(service, "pp-size")
    given = [f"--pp-size {stages}"] if stages > 1 else []
    given += ["--enable-dp-attention"] if has(service, "enable-dp-attention") else []
    if given:
        yield Found(f"{algorithm(service)} does not go with {' and '.join(given)}", ARGUMENTS, given)


@rule(
    "cfg-mode-arguments",
    "warning",
    reason="The mode says how tokens are drafted; arguments that say otherwise win, and what is measured has another "
    "name than it should.",
    source="services/engines.py: what each mode starts",
    remedy="take the arguments out of the service, or give it the mode that they are",
)
def mode(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None:
        return
    given = [
        f"--{name}"
        for name, value in service.arguments.items()
        if name.startswith("speculative-") and value is not False
    ]
    trees = [flag for flag in given if flag.startswith("--speculative-ddtree-")]
    chosen = algorithm(service)
    if service.mode == "autoregressive" and given:
        does = f"drafts by {chosen}" if chosen else "has arguments for drafting, which do nothing"
        yield Found(f"the mode is autoregressive, and the service {does}", ARGUMENTS, given)
    elif service.mode == "linear" and (trees or is_ddtree(service)):
        yield Found("the mode is linear, and arguments are of draft trees", ARGUMENTS, trees or given)
    elif service.mode in ("tree", "shadow") and chosen == "DFLASH" and not is_ddtree(service):
        yield Found(f"the mode is {service.mode}, and the arguments ask for a chain", ARGUMENTS, given)
    elif service.mode != "autoregressive" and not chosen:
        yield Found(f"the mode is {service.mode}, and the arguments ask for no drafting", ARGUMENTS, given)


@rule(
    "cfg-unknown-algorithm",
    "error",
    reason="The engine refuses an algorithm or a flag that it does not know, with status 2 and its usage.",
    source="read in the released wheels: DFLASH since 0.5.11, DDTREE in no release; its usage error, seen on an H200",
    remedy="an environment with the patch set that brings it (`spec: sglang-0.5.11-ddtree` in the inventory's "
    "environments, or `fleetctl patch apply`), or the mode linear",
)
def unknown_algorithm(context: Context) -> Iterator[Found]:
    service, found = sglang(context), version(context.bom, "sglang")
    if service is None or found is None:
        return
    if algorithm(service) == "DFLASH" and found < DFLASH_SINCE:
        remedy = Remedy("sglang 0.5.11 or later", packages=(f"sglang>={DFLASH_SINCE}",))
        yield Found(
            f"sglang {found} has no DFLASH",
            ARGUMENTS,
            [f"DFLASH came with {DFLASH_SINCE}"],
            remedy,
        )
        return
    flags = [f"--{name}" for name in service.arguments if name.startswith("speculative-ddtree-")]
    wanted = ["--speculative-algorithm DDTREE"] if algorithm(service) == "DDTREE" else []
    there = modules(context.bom, "sglang")
    if there is None or not (flags or wanted) or str(found) not in DDTREE_RELEASES:
        return
    if not any("ddtree" in str(name) for names in there.values() for name in names):
        seen = [*wanted, *flags, f"sglang {found} in {service.environment} has no ddtree module"]
        yield Found("draft trees are asked of an sglang without their patch set", ARGUMENTS, seen[:6])


@rule(
    "cfg-tp-gpus",
    "error",
    reason="Each rank takes a card of its own; a rank without one fails, a card without a rank idles.",
    source="SGLang's server arguments: tp-size, pp-size, dp-size",
    remedy="leave --tp-size out (fleetctl gives the slot's count), or give the slot as many GPUs",
)
def ranks(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not service.gpus or whole(service, "nnodes") > 1:
        return
    dp = 1 if has(service, "enable-dp-attention") else whole(service, "dp-size")
    wanted, there = whole(service, "tp-size") * whole(service, "pp-size") * dp, len(service.gpus)
    seen = [
        f"--{name} {whole(service, name)}" for name in ("tp-size", "pp-size", "dp-size") if has(service, name)
    ]
    if wanted > there:
        yield Found(f"{wanted} ranks are asked for, the slot has {there} GPUs", ARGUMENTS, seen)
    elif wanted < there:
        what = f"{wanted} of the slot's {there} GPUs are used"
        yield Found(what, ARGUMENTS, seen or ["no --tp-size"], severity="warning")


@rule(
    "cfg-tp-heads",
    "error",
    reason="Attention heads are dealt out to ranks whole: each rank gets as many as the next, of keys and values at "
    "least one, or a copy of one.",
    source="SGLang, layers/dp_attention and models: asserts on num_attention_heads and num_key_value_heads",
    remedy="a --tp-size that divides the number of attention heads, and that divides the KV heads or is their multiple",
)
def heads(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or (size := whole(service, "tp-size")) <= 1:
        return
    known = config(context, service.model)
    queries, pairs = known.get("num_attention_heads"), known.get("num_key_value_heads")
    if isinstance(queries, int) and queries % size:
        yield Found(
            f"{queries} attention heads cannot be dealt to {size} ranks", ARGUMENTS, [f"--tp-size {size}"]
        )
    elif isinstance(pairs, int) and pairs > 0 and (pairs % size if pairs >= size else size % pairs):
        yield Found(f"{pairs} KV heads cannot be dealt to {size} ranks", ARGUMENTS, [f"--tp-size {size}"])


@rule(
    "cfg-cuda-graph",
    "info",
    reason="Without CUDA graphs every kernel is launched by itself: single requests are slower, trees most of all.",
    source="read in the released wheels",
    remedy="take --disable-cuda-graph out once the service runs; compare modes with the same setting only",
)
def cuda_graph(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not has(service, "disable-cuda-graph"):
        return
    sizes = [f"--{name}" for name in ("cuda-graph-max-bs", "cuda-graph-bs") if has(service, name)]
    if sizes:
        what = f"{listed(sizes)} and --disable-cuda-graph contradict each other"
        yield Found(what, ARGUMENTS, [*sizes, "--disable-cuda-graph"], severity="warning")
    else:
        yield Found("CUDA graphs are off", ARGUMENTS, ["--disable-cuda-graph"])


@rule(
    "cfg-grammar-none",
    "info",
    reason="Without a grammar backend, requests for JSON or for a tool by name are refused.",
    source="SGLang: --grammar-backend; structured outputs and tool_choice need one",
    remedy="xgrammar as this sglang pins it, and --grammar-backend taken out, where structured outputs are wanted",
)
def grammar(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or text(service, "grammar-backend") != "none":
        return
    parser = text(service, "tool-call-parser")
    if parser:
        seen = [f"--tool-call-parser {parser}", "--grammar-backend none"]
        yield Found(
            "tool calls are parsed, and none can be required: no grammar", ARGUMENTS, seen, severity="warning"
        )
    elif algorithm(service) not in BLOCK_ALGORITHMS:
        yield Found("structured outputs are off", ARGUMENTS, ["--grammar-backend none"])
