"""What rules ask of facts and services. What is not known is None or empty, never an error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from fleetctl.doctor.rule import Context, Json, ServiceView
from fleetctl.inventory.models import Argument

MIB = 1 << 20
GIB = 1 << 30
DEFAULT_BLOCK = 16
DDTREE_RELEASES = ("0.5.11",)
"""Releases of SGLang that there is a patch set for draft trees for."""
ALIASES: Mapping[str, tuple[str, ...]] = {
    "tp-size": ("tp", "tensor-parallel-size"),
    "pp-size": ("pp", "pipeline-parallel-size"),
    "dp-size": ("dp", "data-parallel-size"),
    "speculative-algorithm": ("speculative-algo",),
    "speculative-draft-model-path": ("speculative-draft-model",),
    "model-path": ("model",),
}
HYBRID_KEYS = (
    "linear_num_value_heads",
    "mamba_num_heads",
    "mamba_n_heads",
    "ssm_cfg",
    "hybrid_override_pattern",
)
HYBRID_TYPES = re.compile(r"qwen3_?(?:next|[5-9])|jamba|falcon_?h1|nemotron_?h|bamba|lfm2|kimi_?linear", re.I)


def mapping(value: Any) -> Mapping[str, Any]:
    """``value`` where it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def at(facts: Json, *keys: str) -> Any:
    """What stands under nested keys, or None."""
    found: Any = facts
    for key in keys:
        found = mapping(found).get(key)
    return found


def rows(facts: Json, *keys: str) -> list[Mapping[str, Any]]:
    """The mappings in the list under nested keys."""
    found = at(facts, *keys)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def cards(context: Context) -> list[Mapping[str, Any]]:
    """The GPUs that matter: the examined service's, or all of the host's where none is examined."""
    there = rows(context.facts, "gpus", "gpus")
    if context.service is None:
        return there
    return [card for card in there if card.get("index") in context.service.gpus]


def capability(card: Json) -> tuple[int, int] | None:
    """``(12, 0)`` of a card, None where it does not say."""
    found = re.fullmatch(r"(\d+)\.(\d+)", str(card.get("compute_cap") or ""))
    return (int(found[1]), int(found[2])) if found else None


def bus(text: Any) -> str:
    """A PCI address without domain and function, as nvidia-smi and the kernel both have it: ``81:00``."""
    found = re.search(r"([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.\d)?$", str(text or ""))
    return f"{found[1]}:{found[2]}".lower() if found else ""


def argument(service: ServiceView, name: str) -> Argument | None:
    """The value of an argument by its usual name or another that the engine knows; None where not given."""
    for each in (name, *ALIASES.get(name, ())):
        value = service.arguments.get(each)
        if value is not None and value is not False:
            return value
    return None


def text(service: ServiceView, name: str) -> str:
    """An argument's value as text, the first of several; empty where it is not given or has none."""
    value = argument(service, name)
    if isinstance(value, list):
        value = value[0]
    return "" if value is None or isinstance(value, bool) else str(value)


def number(service: ServiceView, name: str) -> float | None:
    """An argument's value as a number."""
    try:
        return float(text(service, name))
    except ValueError:
        return None


def whole(service: ServiceView, name: str, default: int = 1) -> int:
    """An argument's value as a whole number, ``default`` where it is not given."""
    found = number(service, name)
    return default if found is None else int(found)


def has(service: ServiceView, name: str) -> bool:
    """Whether a flag is set, or an argument given."""
    return argument(service, name) is not None


def sglang(context: Context) -> ServiceView | None:
    """The examined service where SGLang serves it."""
    service = context.service
    return service if service is not None and service.engine == "sglang" else None


def algorithm(service: ServiceView) -> str:
    """The speculative algorithm in capitals, empty where the service does not speculate."""
    return text(service, "speculative-algorithm").upper()


def is_ddtree(service: ServiceView) -> bool:
    """Whether the arguments ask for draft trees by DDTree."""
    wanted = text(service, "speculative-ddtree-mode")
    tree = bool(wanted) and wanted != "off"
    return algorithm(service) == "DDTREE" or (algorithm(service) == "DFLASH" and tree)


def model(context: Context, path: str | None) -> Mapping[str, Any]:
    """The facts of the model at ``path``."""
    return mapping(mapping(context.facts.get("models")).get(path or ""))


def config(context: Context, path: str | None) -> Mapping[str, Any]:
    """A model's configuration, that of its text part laid over the rest; empty where it is not known."""
    whole_config = mapping(model(context, path).get("config"))
    return {**whole_config, **mapping(whole_config.get("text_config"))}


def is_hybrid(known: Json) -> bool:
    """Whether a model with this configuration keeps a recurrent state beside attention."""
    kinds = known.get("layer_types")
    if isinstance(kinds, list) and any("linear" in str(kind) or "mamba" in str(kind) for kind in kinds):
        return True
    names = [known.get("model_type"), *(known.get("architectures") or [])]
    return any(known.get(key) for key in HYBRID_KEYS) or any(
        HYBRID_TYPES.search(str(name)) for name in names if name
    )


def layers(known: Json) -> tuple[int, int]:
    """``(with attention, recurrent)``: how many layers of each; zeros where the configuration does not say."""
    total = known.get("num_hidden_layers")
    if not isinstance(total, int):
        return 0, 0
    kinds = known.get("layer_types")
    if isinstance(kinds, list):
        recurrent = sum("linear" in str(kind) or "mamba" in str(kind) for kind in kinds)
        return total - recurrent, recurrent
    every = known.get("full_attention_interval")
    if isinstance(every, int) and every > 0 and is_hybrid(known):
        return total // every, total - total // every
    return (total, 0) if not is_hybrid(known) else (0, 0)


def block_size(context: Context, service: ServiceView) -> int:
    """How many tokens one DFlash draft has: the argument's, the drafter's, or the usual 16."""
    given = number(service, "speculative-dflash-block-size")
    said = config(context, service.drafter).get("block_size")
    return int(given) if given else said if isinstance(said, int) else DEFAULT_BLOCK


def verified_tokens(context: Context, service: ServiceView) -> int:
    """How many tokens one verify pass has for a request: 1 without speculation."""
    if not algorithm(service):
        return 1
    budget = number(service, "speculative-ddtree-budget")
    if is_ddtree(service) and budget and text(service, "speculative-ddtree-mode") != "shadow":
        return int(budget) + 1
    if algorithm(service) in ("DFLASH", "DDTREE"):
        return block_size(context, service)
    return max(1, whole(service, "speculative-num-draft-tokens"))


def version(bom: Json | None, *names: str) -> Version | None:
    """The version of the first of these distributions that an environment has."""
    found = {str(row.get("name")): str(row.get("version")) for row in rows(bom or {}, "distributions")}
    for name in names:
        try:
            return Version(found[name])
        except (KeyError, InvalidVersion):
            continue
    return None


def modules(bom: Json | None, distribution: str) -> Mapping[str, Any] | None:
    """A distribution's modules by package; None where the environment or they are not known."""
    for row in rows(bom or {}, "distributions"):
        if row.get("name") == distribution:
            return mapping(row.get("modules")) or None
    return None


def gib(count: float) -> str:
    """Bytes in words."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def listed(words: Iterable[Any]) -> str:
    """``0, 1, 3``"""
    return ", ".join(str(word) for word in words)
