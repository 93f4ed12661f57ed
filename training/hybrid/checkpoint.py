"""The hybrid model as SGLang and transformers load it: ``Qwen3_5ForConditionalGeneration``, the text part trained.

SGLang 0.5.11 has the dense hybrid only behind its multimodal class, so a vision tower of one small layer comes with
it; no request ever sees it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.hybrid.model import Hybrid
from training.hybrid.recipe import END, SPECIAL, STOP, HybridShape
from training.hybrid.tokens import TOKENIZER, UNSEEN

TEXT, VISION = "model.language_model.", "model.visual."
WIDE = (".A_log",)
"""Kept in float32, as SGLang holds them."""
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PATCH, FRAMES, MERGED = 16, 2, 2
TOWER = {
    "depth": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_heads": 2,
    "num_position_embeddings": 256,
}


def text_config(s: HybridShape) -> dict[str, Any]:
    """``text_config``; the interval too, which transformers leaves out and SGLang needs."""
    rope = {
        "rope_type": "default",
        "rope_theta": s.theta,
        "partial_rotary_factor": s.rotary,
        "mrope_section": list(s.sections),
        "mrope_interleaved": True,
    }
    kinds = ["full_attention" if s.is_attention(layer) else "linear_attention" for layer in range(s.layers)]
    return {
        "model_type": "qwen3_5_text",
        "vocab_size": s.vocab,
        "hidden_size": s.width,
        "intermediate_size": s.mlp,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": s.positions,
        "rms_norm_eps": s.eps,
        "attention_bias": False,
        "attn_output_gate": True,
        "tie_word_embeddings": False,
        "linear_num_key_heads": s.key_heads,
        "linear_num_value_heads": s.value_heads,
        "linear_key_head_dim": s.key_dim,
        "linear_value_head_dim": s.value_dim,
        "linear_conv_kernel_dim": s.kernel,
        "full_attention_interval": s.interval,
        "layer_types": kinds,
        "rope_theta": s.theta,
        "partial_rotary_factor": s.rotary,
        "rope_parameters": rope,
        "dtype": "bfloat16",
        "eos_token_id": STOP,
        "pad_token_id": END,
        "bos_token_id": None,
    }


def config(s: HybridShape) -> dict[str, Any]:
    """``config.json``."""
    tower = {
        **TOWER,
        "model_type": "qwen3_5",
        "out_hidden_size": s.width,
        "patch_size": PATCH,
        "spatial_merge_size": MERGED,
        "temporal_patch_size": FRAMES,
        "in_channels": 3,
        "hidden_act": "gelu_pytorch_tanh",
        "deepstack_visual_indexes": [],
    }
    special = {name: SPECIAL.index(f"<|{word}|>") for name, word in _WORDS.items()}
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text_config(s),
        "vision_config": tower,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "eos_token_id": STOP,
        "pad_token_id": END,
        **special,
    }


_WORDS = {
    "vision_start_token_id": "vision_start",
    "vision_end_token_id": "vision_end",
    "image_token_id": "image_pad",
    "video_token_id": "video_pad",
}


def vision_weights(s: HybridShape, seed: int = 0) -> dict[str, Tensor]:
    """A random tower of :data:`TOWER`'s sizes, by the names of transformers' own."""
    width, inner = TOWER["hidden_size"], TOWER["intermediate_size"]
    merged = width * MERGED**2
    shapes = {
        "patch_embed.proj.weight": (width, 3, FRAMES, PATCH, PATCH),
        "patch_embed.proj.bias": (width,),
        "pos_embed.weight": (TOWER["num_position_embeddings"], width),
        "merger.norm.weight": (width,),
        "merger.norm.bias": (width,),
        "merger.linear_fc1.weight": (merged, merged),
        "merger.linear_fc1.bias": (merged,),
        "merger.linear_fc2.weight": (s.width, merged),
        "merger.linear_fc2.bias": (s.width,),
    }
    for block in range(TOWER["depth"]):
        for name, shape in {
            "norm1.weight": (width,),
            "norm1.bias": (width,),
            "norm2.weight": (width,),
            "norm2.bias": (width,),
            "attn.qkv.weight": (3 * width, width),
            "attn.qkv.bias": (3 * width,),
            "attn.proj.weight": (width, width),
            "attn.proj.bias": (width,),
            "mlp.linear_fc1.weight": (inner, width),
            "mlp.linear_fc1.bias": (inner,),
            "mlp.linear_fc2.weight": (width, inner),
            "mlp.linear_fc2.bias": (width,),
        }.items():
            shapes[f"blocks.{block}.{name}"] = shape
    rng = torch.Generator().manual_seed(seed)
    made = {name: torch.randn(shape, generator=rng) * 0.02 for name, shape in shapes.items()}
    ones = {name for name in made if "norm" in name and name.endswith("weight")}
    return {VISION + name: value + (1 if name in ones else 0) for name, value in made.items()}


def weights(model: Hybrid) -> dict[str, Tensor]:
    """All weights by the checkpoint's names, as they are stored."""
    found = {
        name if name.startswith("lm_head") else TEXT + name: value.detach().cpu()
        for name, value in model.state_dict().items()
    } | vision_weights(model.shape)
    return {
        name: value.to(torch.float32 if name.endswith(WIDE) else torch.bfloat16).contiguous()
        for name, value in found.items()
    }


def save(model: Hybrid, prepared: Path, folder: Path) -> None:
    """Write the checkpoint with its tokenizer (from ``prepared``) and what its processor reads."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights(model), folder / "model.safetensors", metadata={"format": "pt"})
    for name in (TOKENIZER, UNSEEN):
        shutil.copyfile(prepared / name, folder / name)
    rates = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "processor_class": "Qwen3VLProcessor"}
    sizes = {
        "patch_size": PATCH,
        "temporal_patch_size": FRAMES,
        "merge_size": MERGED,
        "size": {"shortest_edge": 1024, "longest_edge": 65536},
    }
    for name, content in {
        "config": config(model.shape),
        "generation_config": {"eos_token_id": STOP, "pad_token_id": END},
        "tokenizer_config": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": SPECIAL[STOP],
            "pad_token": SPECIAL[END],
            "bos_token": None,
            "model_max_length": model.shape.positions,
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": False,
        },
        "preprocessor_config": {"image_processor_type": "Qwen2VLImageProcessorFast", **rates, **sizes},
        "video_preprocessor_config": {"video_processor_type": "Qwen3VLVideoProcessor", **rates, **sizes},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def load(folder: Path, shape: HybridShape) -> Hybrid:
    """A saved model in float32 on the CPU; ``shape`` must be its own."""
    model = Hybrid(shape)
    stored = load_file(folder / "model.safetensors")
    own = {
        name.removeprefix(TEXT): value.float()
        for name, value in stored.items()
        if not name.startswith(VISION)
    }
    model.load_state_dict(own)
    return model
