"""CFG, memory: what the arguments ask of the GPUs' memory beside the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.known import (
    MIB,
    algorithm,
    cards,
    config,
    gib,
    has,
    is_ddtree,
    is_hybrid,
    layers,
    number,
    sglang,
    text,
    verified_tokens,
    whole,
)
from fleetctl.doctor.rule import Context, Found, ServiceView, rule
from fleetctl.doctor.rules.model import weights_bytes

ARGUMENTS = "arguments"
DFLASH_REQUESTS = 48
STATIC_SHARE = 0.87
TREES_SHARE, TREES_SHARE_LEFT = 0.25, 0.6
"""Of a card's memory, and of what its weights leave, what DDTREE lets the states of a tree's nodes take where no
number of requests is given (ddtree_args)."""
KV_SHARE = 0.25
"""How much of the memory behind the weights should be left to the KV cache."""


@dataclass(frozen=True)
class Room:
    """Bytes of GPU memory over all ranks: ``total`` that the engine may take, ``free`` of it behind the weights."""

    total: float
    free: float


def room(context: Context, service: ServiceView) -> Room | None:
    """The room for caches and states; None where cards or weights are not known."""
    there, weights = cards(context), weights_bytes(context, service)
    sizes = [size for card in there if isinstance(size := card.get("memory_total_mib"), int)]
    if not sizes or len(sizes) < len(set(service.gpus)) or not weights:
        return None
    share = number(service, "mem-fraction-static") or STATIC_SHARE
    ranks = min(whole(service, "tp-size") * whole(service, "pp-size"), len(sizes))
    total = min(sizes) * MIB * ranks * share
    return Room(total, total - weights)


def state_bytes(context: Context, service: ServiceView) -> int:
    """Bytes of one recurrent state and its convolution window over all recurrent layers; 0 where the model has none
    or does not say."""
    known = config(context, service.model)
    _, recurrent = layers(known)
    sizes = [known.get(f"linear_{name}") for name in ("num_value_heads", "value_head_dim", "key_head_dim")]
    if not recurrent or not all(isinstance(size, int) for size in sizes):
        return 0
    heads, width, depth = (int(size) for size in sizes if size)
    kind = text(service, "mamba-ssm-dtype") or str(known.get("mamba_ssm_dtype") or "float32")
    keys, kernel = known.get("linear_num_key_heads"), known.get("linear_conv_kernel_dim")
    window = (2 * keys * depth + heads * width) * (kernel - 1) * 2 if keys and kernel else 0
    return int(recurrent * (heads * width * depth * (2 if "16" in kind else 4) + window))


def running_requests(context: Context, service: ServiceView, state: int) -> int:
    """How many requests may run: as given; else what DFLASH sets, which trees lower to a share of the card."""
    if has(service, "max-running-requests"):
        return whole(service, "max-running-requests")
    there = room(context, service)
    if not is_ddtree(service) or text(service, "speculative-ddtree-mode") == "shadow" or there is None:
        return DFLASH_REQUESTS
    share = number(service, "mem-fraction-static") or STATIC_SHARE
    most = min(there.total / share * TREES_SHARE, there.free * TREES_SHARE_LEFT)
    return max(1, min(DFLASH_REQUESTS, int(most // (state * verified_tokens(context, service)))))


@rule(
    "cfg-hybrid-requests",
    "error",
    reason="On a hybrid model each request slot keeps a recurrent state per token of a verify pass, 147 MiB for a 27B. "
    "DFLASH has 48 slots unless told otherwise; draft trees lower them by what the card and its weights leave.",
    source="read in the released wheels; sglang#28730, sglang#36889; computed from the model's config.json",
    remedy="--max-running-requests",
)
def hybrid_requests(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not algorithm(service) or not is_hybrid(config(context, service.model)):
        return
    state, there = state_bytes(context, service), room(context, service)
    if not state or there is None or there.free <= 0:
        return
    nodes = verified_tokens(context, service)
    asked = running_requests(context, service, state)
    slot = state * (nodes + 1)
    needed = slot * (asked + 1)
    if needed <= there.free * (1 - KV_SHARE):
        return
    fits = int(there.free * (1 - KV_SHARE) // slot) - 1
    seen = [
        f"{gib(state)} a state, {nodes} tokens a verify pass, {asked} requests: {gib(needed)}",
        f"behind the weights: {gib(there.free)}",
        "--max-running-requests is not given" if not has(service, "max-running-requests") else "",
    ]
    what = f"recurrent states of {asked} requests take {gib(needed)}, {gib(there.free)} are left"
    if fits < 1:
        remedy = Remedy(
            "a smaller budget, --mamba-ssm-dtype bfloat16, or more GPUs: not even one request fits"
        )
    else:
        remedy = Remedy(f"--max-running-requests {fits}", arguments={"max-running-requests": fits})
    severity: Severity = "error" if needed > there.free else "warning"
    yield Found(what, ARGUMENTS, [line for line in seen if line], remedy, severity)


@rule(
    "cfg-hybrid-cache",
    "warning",
    reason="Every running request of a hybrid model holds a slot of the state cache: with fewer slots than requests "
    "the rest waits.",
    source="SGLang: --max-mamba-cache-size; seen with sglang 0.5.11 on an H200",
    remedy="--max-mamba-cache-size of at least --max-running-requests",
)
def hybrid_cache(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or not is_hybrid(config(context, service.model)):
        return
    slots, asked = number(service, "max-mamba-cache-size"), number(service, "max-running-requests")
    if slots is not None and asked is not None and slots < asked:
        seen = [f"--max-mamba-cache-size {slots:.0f}", f"--max-running-requests {asked:.0f}"]
        remedy = Remedy(f"--max-mamba-cache-size {asked:.0f}", arguments={"max-mamba-cache-size": int(asked)})
        yield Found(
            f"{asked:.0f} requests may run, {slots:.0f} have a recurrent state", ARGUMENTS, seen, remedy
        )


@rule(
    "cfg-max-total-tokens",
    "warning",
    reason="All requests share this many cached tokens: a longer one is refused, and more than fit are cut down.",
    source="SGLang: --max-total-tokens, --context-length",
    remedy="take --max-total-tokens out (SGLang then takes what fits), or lower --context-length to it",
)
def total_tokens(context: Context) -> Iterator[Found]:
    service = sglang(context)
    tokens = number(service, "max-total-tokens") if service else None
    if service is None or tokens is None:
        return
    seen = [f"--max-total-tokens {tokens:.0f}"]
    length = number(service, "context-length")
    if length is not None and length > tokens:
        what = f"requests of up to {length:.0f} tokens are promised, {tokens:.0f} fit in all"
        yield Found(what, ARGUMENTS, [*seen, f"--context-length {length:.0f}"])
    there, each = room(context, service), kv_bytes(context, service)
    if there and each and tokens * each > max(there.free, 0):
        what = f"{tokens:.0f} tokens take {gib(tokens * each)}, {gib(max(there.free, 0))} are left behind the weights"
        yield Found(what, ARGUMENTS, [*seen, f"{each} bytes a token"])


def kv_bytes(context: Context, service: ServiceView) -> int:
    """Bytes of keys and values of one token over all layers with attention; 0 where the model does not say."""
    known = config(context, service.model)
    attending, _ = layers(known)
    pairs, width, heads = (
        known.get(key) for key in ("num_key_value_heads", "head_dim", "num_attention_heads")
    )
    if width is None and isinstance(known.get("hidden_size"), int) and isinstance(heads, int) and heads:
        width = known["hidden_size"] // heads
    if not (attending and isinstance(pairs, int) and isinstance(width, int)) or known.get("kv_lora_rank"):
        return 0
    return 2 * attending * pairs * width * (1 if "fp8" in text(service, "kv-cache-dtype") else 2)


@rule(
    "cfg-context-length",
    "warning",
    reason="Beyond the length that a model was trained for its positions mean nothing, unless its configuration scales "
    "them.",
    source="max_position_embeddings of the model's config.json",
    remedy="--context-length of at most the model's, or a configuration with RoPE scaling",
)
def context_length(context: Context) -> Iterator[Found]:
    service = sglang(context)
    length = number(service, "context-length") if service else None
    if service is None or length is None:
        return
    known = config(context, service.model)
    trained = known.get("max_position_embeddings")
    if isinstance(trained, int) and length > trained and not known.get("rope_scaling"):
        seen = [f"--context-length {length:.0f}", f"max_position_embeddings {trained}"]
        yield Found(f"a context of {length:.0f} is asked of a model trained for {trained}", ARGUMENTS, seen)
