"""MODEL: weights that are not whole, configurations that lack a field, drafters of another target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packaging.version import Version

from fleetctl.doctor.finding import Remedy
from fleetctl.doctor.known import (
    MIB,
    algorithm,
    at,
    cards,
    config,
    gib,
    has,
    is_hybrid,
    listed,
    mapping,
    model,
    number,
    rows,
    sglang,
    version,
    whole,
)
from fleetctl.doctor.rule import Context, Found, Json, ServiceView, rule

SHOWN = 5
FULL_TMPFS_BYTES = 512 * MIB
WINDOWS_SINCE = Version("0.5.14")
COPY = "copy the model to the host again; `sha256sum` both sides where it happens twice"


def _paths(context: Context) -> list[str]:
    """The models that matter: the service's, or all that were looked at."""
    if context.service is None:
        return [str(path) for path in mapping(context.facts.get("models"))]
    return [path for path in (context.service.model, context.service.drafter) if path]


@rule(
    "model-missing",
    "error",
    reason="An engine takes a path that is not there for the name of a model on a hub, and asks the internet.",
    source="signature model-missing; transformers' from_pretrained",
    remedy="correct the model's path, or copy the model to the host",
)
def missing(context: Context) -> Iterator[Found]:
    for path in _paths(context):
        if model(context, path).get("exists") is False:
            yield Found("the model is not there", path)


@rule(
    "model-shards",
    "error",
    reason="Weights are read shard by shard; one that is missing or cut short ends the start after minutes.",
    source="safetensors: the header gives the file's length; model.safetensors.index.json names every shard",
    remedy=COPY,
)
def shards(context: Context) -> Iterator[Found]:
    for path in _paths(context):
        index = mapping(model(context, path).get("index"))
        gone, short = _names(index.get("missing")), _names(index.get("short"))
        of = f" of {index['shards']}" if index.get("shards") else ""
        if gone:
            yield Found(f"{len(gone)}{of} files of the model's weights are missing", path, gone[:SHOWN])
        if short:
            yield Found(f"{len(short)}{of} files of the model's weights are cut short", path, short[:SHOWN])


def _names(value: Any) -> list[str]:
    found = value if isinstance(value, list) else []
    return [str(one.get("file") or one) if isinstance(one, Mapping) else str(one) for one in found]


@rule(
    "model-config",
    "error",
    reason="SGLang lays out a hybrid model's layers by full_attention_interval, which transformers drops when it "
    "saves a configuration.",
    source="seen with sglang 0.5.11 on an H200 (hybrid model)",
    remedy=Remedy(
        "add full_attention_interval to the model's config.json (in text_config where there is one; the original "
        "model's file has it), or install the transformers that this sglang pins"
    ),
)
def config_fields(context: Context) -> Iterator[Found]:
    service = sglang(context)
    known = config(context, service.model) if service else {}
    kind = str(known.get("model_type") or "")
    if service and kind.startswith(("qwen3_next", "qwen3_5")) and not known.get("full_attention_interval"):
        seen = [f"model_type: {kind}", "full_attention_interval: not there"]
        if known.get("layer_types"):
            seen.append("layer_types is there, which this sglang does not read")
        yield Found(
            "the model's configuration has no full_attention_interval", f"{service.model}/config.json", seen
        )


@rule(
    "model-drafter",
    "error",
    reason="A DFlash drafter has neither embedding nor head: it reads one target's hidden states and fits no other.",
    source="DFlash drafters as published: config.json of drafter and target",
    remedy="take the drafter that was trained for this target",
)
def drafter(context: Context) -> Iterator[Found]:
    service = context.service
    if service is None or not service.drafter or service.drafter == service.model:
        return
    own, target = config(context, service.drafter), config(context, service.model)
    dflash = mapping(own.get("dflash_config"))
    if not own or not target or not (dflash or "DFlashDraftModel" in (own.get("architectures") or [])):
        return
    where = f"{service.drafter}/config.json"
    for name, wanted in (("hidden_size", "hidden_size"), ("vocab_size", "vocab_size"), _TARGET_LAYERS):
        here, there = own.get(name), target.get(wanted)
        if isinstance(here, int) and isinstance(there, int) and here != there:
            seen = [f"drafter: {name} {here}", f"target: {wanted} {there}"]
            yield Found(f"the drafter is of another target: {name} {here}, not {there}", where, seen)
    yield from _ids(dflash, target, where)


_TARGET_LAYERS = ("num_target_layers", "num_hidden_layers")


def _ids(dflash: Json, target: Json, where: str) -> Iterator[Found]:
    mask, vocabulary = dflash.get("mask_token_id"), target.get("vocab_size")
    if isinstance(mask, int) and isinstance(vocabulary, int) and not 0 <= mask < vocabulary:
        seen = [f"mask_token_id {mask}", f"the target's vocab_size {vocabulary}"]
        yield Found("the drafter's mask token is not in the target's vocabulary", where, seen)
    ids, count = dflash.get("target_layer_ids"), target.get("num_hidden_layers")
    if isinstance(ids, list) and isinstance(count, int):
        beyond = [each for each in ids if isinstance(each, int) and not 0 <= each < count]
        if beyond:
            seen = [f"target_layer_ids {ids}", f"the target has {count} layers"]
            yield Found(f"the drafter reads layers that the target has not: {listed(beyond)}", where, seen)


@rule(
    "model-drafter-block",
    "error",
    reason="A DFlash drafter was trained for one block size; more tokens than that it cannot draft.",
    source="DFlash drafters as published: block_size; --speculative-dflash-block-size overrides it",
    remedy="leave --speculative-dflash-block-size out, or at most at the drafter's block_size",
)
def drafter_block(context: Context) -> Iterator[Found]:
    service = sglang(context)
    if service is None or algorithm(service) not in ("DFLASH", "DDTREE"):
        return
    trained = config(context, service.drafter).get("block_size")
    given = number(service, "speculative-dflash-block-size")
    if given and isinstance(trained, int) and given > trained:
        seen = [
            f"--speculative-dflash-block-size {given:.0f}",
            f"block_size {trained} in {service.drafter}/config.json",
        ]
        yield Found(f"a block of {given:.0f} is asked of a drafter trained for {trained}", "arguments", seen)


@rule(
    "model-drafter-window",
    "warning",
    reason="SGLang before 0.5.14 lets a drafter's sliding-window layers see everything, so it drafts worse the longer "
    "the context is.",
    source="z-lab/dflash#126",
    remedy=Remedy("sglang 0.5.14 or later for long contexts", packages=("sglang>=0.5.14",)),
)
def drafter_window(context: Context) -> Iterator[Found]:
    service, found = sglang(context), version(context.bom, "sglang")
    if service is None or not service.drafter or found is None or found >= WINDOWS_SINCE:
        return
    own = config(context, service.drafter)
    kinds = own.get("layer_types")
    sliding = sum("sliding" in str(kind) for kind in kinds) if isinstance(kinds, list) else 0
    if sliding:
        seen = [
            f"{sliding} of {len(kinds or [])} layers slide, window {own.get('sliding_window')}",
            f"sglang {found}",
        ]
        yield Found("this sglang ignores the drafter's sliding window", service.drafter, seen)


@rule(
    "model-too-big",
    "error",
    reason="All weights lie in the GPUs' memory, beside them the KV cache and what a forward pass needs.",
    source="the sizes of the model's files against nvidia-smi's memory.total",
    remedy="more GPUs for the slot, cards with more memory, or a quantised model",
)
def too_big(context: Context) -> Iterator[Found]:
    service, there = context.service, cards(context)
    if service is None or not service.gpus or len(there) < len(set(service.gpus)):
        return
    if has(service, "cpu-offload-gb") or service.engine == "other":
        return
    totals = [card.get("memory_total_mib") for card in there]
    sizes = [model(context, path).get("bytes") for path in _paths(context)]
    weights = sum(size for size in sizes if isinstance(size, int))
    if not all(isinstance(total, int) for total in totals) or not weights:
        return
    ranks = whole(service, "tp-size") * whole(service, "pp-size") if service.engine == "sglang" else 1
    room = min(int(total) for total in totals if total) * MIB * min(ranks, len(totals))
    if weights > room:
        seen = [f"weights: {gib(weights)}", f"memory of {ranks} GPU(s): {gib(room)}"]
        yield Found(
            f"{gib(weights)} of weights do not fit into {gib(room)} of GPU memory", service.model, seen
        )
        return
    share = number(service, "mem-fraction-static")
    if service.engine == "sglang" and share and weights > share * room:
        seen = [f"--mem-fraction-static {share}", f"weights: {weights / room:.2f} of the memory"]
        remedy = Remedy(
            f"--mem-fraction-static of {min(0.95, weights / room + 0.1):.2f} or more, or more GPUs"
        )
        yield Found(
            "--mem-fraction-static leaves less memory than the weights take", "arguments", seen, remedy
        )


@rule(
    "model-on-full-tmpfs",
    "warning",
    reason="A model in RAM ends with the host's next start and takes memory from everything else; on a full tmpfs a "
    "copy is cut without a word.",
    source="seen on the first hosts: the model is a RAM-backed copy in /dev/shm",
    remedy="free some of the tmpfs or make it larger (`mount -o remount,size=…`), or keep the model on a disk",
)
def full_tmpfs(context: Context) -> Iterator[Found]:
    for path in _paths(context):
        known = model(context, path)
        if known.get("fs") not in ("tmpfs", "ramfs") or known.get("exists") is False:
            continue
        free = _free(context.facts, path)
        if free is not None and free < FULL_TMPFS_BYTES:
            seen = [f"{gib(free)} free", f"the model takes {gib(known.get('bytes') or 0)}"]
            yield Found("the model lies on a tmpfs that is nearly full", path, seen)


def _free(facts: Json, path: str) -> int | None:
    """Free bytes of the file system that ``path`` is on."""
    disks = [disk for disk in rows(facts, "disks") if isinstance(disk.get("free_bytes"), int)]
    on = [disk for disk in disks if _is_under(path, str(disk.get("mount") or disk.get("path")))]
    if on:
        return int(max(on, key=lambda disk: len(str(disk.get("mount") or disk.get("path"))))["free_bytes"])
    free = at(facts, "shm", "free_bytes")
    return free if isinstance(free, int) and _is_under(path, "/dev/shm") else None


def _is_under(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


@rule(
    "model-problem",
    "warning",
    reason="A file of the model's folder is not what its name says.",
    source="the agent's look at the model's files",
    remedy=COPY,
)
def problems(context: Context) -> Iterator[Found]:
    for path in _paths(context):
        known = model(context, path)
        index = mapping(known.get("index"))
        if not known.get("fs") or index.get("missing") or index.get("short"):
            continue
        said = [
            str(one.get("what") or one) if isinstance(one, Mapping) else str(one)
            for one in known.get("problems") or []
        ]
        if said:
            yield Found(said[0], path, said[:SHOWN])


def weights_bytes(context: Context, service: ServiceView) -> int:
    """The bytes of the service's model and drafter, as far as they are known."""
    sizes = [model(context, path).get("bytes") for path in (service.model, service.drafter) if path]
    return sum(size for size in sizes if isinstance(size, int))


def is_hybrid_service(context: Context, service: ServiceView) -> bool:
    """Whether the service's model keeps a recurrent state."""
    known = config(context, service.model)
    return bool(known) and is_hybrid(known)
