"""What the server reads of a model folder's and a drafter folder's ``config.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.standalone.errors import StartError


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes shared by the layers of target and drafter (Llama and Qwen3 style)."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    norm_eps: float
    rope_theta: float


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """A Llama model; ``context`` is the longest sequence in tokens."""

    shape: LayerShape
    vocabulary: int
    context: int
    tied_head: bool
    eos_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """A DFlash drafter: block of ``block_size`` tokens, fed by the target's ``target_layers``."""

    shape: LayerShape
    block_size: int
    mask_token: int
    target_layers: tuple[int, ...]


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise StartError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise StartError(f"{path}: expected a JSON object")
    return content


def _shape(content: dict[str, Any]) -> LayerShape:
    heads = int(content["num_attention_heads"])
    rope = content.get("rope_parameters") or content
    return LayerShape(
        hidden=int(content["hidden_size"]),
        intermediate=int(content["intermediate_size"]),
        heads=heads,
        kv_heads=int(content["num_key_value_heads"]),
        head_dim=int(content.get("head_dim") or int(content["hidden_size"]) // heads),
        layers=int(content["num_hidden_layers"]),
        norm_eps=float(content["rms_norm_eps"]),
        rope_theta=float(rope["rope_theta"]),
    )


def _architecture(folder: Path, content: dict[str, Any], expected: str) -> None:
    found = content.get("architectures")
    if found != [expected]:
        raise StartError(f"{folder / 'config.json'}: architectures is {found}; this server runs {expected}")


def load_target_config(folder: Path) -> TargetConfig:
    """The configuration in ``folder``; ``StartError`` names the file and key that cannot be used."""
    content = _read(folder)
    _architecture(folder, content, "LlamaForCausalLM")
    try:
        eos = content["eos_token_id"]
        return TargetConfig(
            shape=_shape(content),
            vocabulary=int(content["vocab_size"]),
            context=int(content["max_position_embeddings"]),
            tied_head=bool(content.get("tie_word_embeddings", False)),
            eos_ids=frozenset(int(i) for i in (eos if isinstance(eos, list) else [eos])),
        )
    except KeyError as error:
        raise StartError(f"{folder / 'config.json'}: {error.args[0]} is missing") from error


def load_drafter_config(folder: Path, target: TargetConfig) -> DrafterConfig:
    """The configuration in ``folder``; ``StartError`` also when the drafter was made for another target."""
    content = _read(folder)
    path = folder / "config.json"
    _architecture(folder, content, "DFlashDraftModel")
    try:
        drafter = DrafterConfig(
            shape=_shape(content),
            block_size=int(content["block_size"]),
            mask_token=int(content["dflash_config"]["mask_token_id"]),
            target_layers=tuple(int(i) for i in content["dflash_config"]["target_layer_ids"]),
        )
    except KeyError as error:
        raise StartError(f"{path}: {error.args[0]} is missing") from error
    if drafter.shape.hidden != target.shape.hidden:
        raise StartError(
            f"{path}: hidden_size is {drafter.shape.hidden}, the model's is {target.shape.hidden}: "
            "the drafter was made for another model"
        )
    if not drafter.target_layers or not all(0 <= i < target.shape.layers for i in drafter.target_layers):
        raise StartError(
            f"{path}: target_layer_ids {list(drafter.target_layers)}: the model has layers 0 to "
            f"{target.shape.layers - 1}"
        )
    return drafter
