"""A model's folder: its configuration, and whether its files are whole, by headers and sizes alone."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Set

from fleetctl.agent.files import read_start

Json = Dict[str, Any]

INDEX = "model.safetensors.index.json"
CONFIG_BYTES = 4 << 20
INDEX_BYTES = 64 << 20
HEADER_BYTES = 100_000_000
LFS = b"version https://git-lfs"
PROBLEMS = 20
KEYS = (
    "architectures", "model_type", "num_hidden_layers", "hidden_size", "head_dim", "num_attention_heads",
    "num_key_value_heads", "vocab_size", "max_position_embeddings", "torch_dtype", "dtype", "quantization_config",
    "full_attention_interval", "layer_types", "num_experts", "n_routed_experts", "num_experts_per_tok", "block_size",
    "dflash_config", "mask_token_id", "auto_map", "transformers_version", "tie_word_embeddings",
    "num_target_layers", "sliding_window", "rope_scaling", "kv_lora_rank", "linear_num_key_heads",
    "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "mamba_ssm_dtype", "mamba_num_heads",
    "mamba_n_heads", "hybrid_override_pattern",
)  # fmt: skip
NESTED = ("text_config", "llm_config", "language_config")
SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$")


class Weights(NamedTuple):
    """A safetensors file: its tensors' names and the size that its header asks for."""

    tensors: Set[str]
    size: int


def look(path: str) -> Json:
    """``{"exists", "config", "index", "bytes", "fs", "files", "problems"}`` of one model's folder.

    ``index``: ``{"shards", "missing": [name], "short": [name]}``; ``short`` files have another size than their
    header asks for. None of the files is read whole.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = ["it is a file, not a folder"] if folder.exists() else []
        return {**_nothing(folder.exists()), "problems": what}
    problems: List[str] = []
    sizes = _sizes(folder, problems)
    config = _config(folder, problems)
    index = _index(folder, sizes, problems)
    return {
        "exists": True,
        "config": config,
        "index": index,
        "bytes": sum(sizes.values()),
        "fs": filesystem(path),
        "files": len(sizes),
        "problems": problems[:PROBLEMS],
    }


def _nothing(exists: bool) -> Json:
    return {"exists": exists, "config": None, "index": None, "bytes": 0, "fs": None, "files": 0}


def _sizes(folder: Path, problems: List[str]) -> Dict[str, int]:
    sizes: Dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_file():
                    sizes[entry.name] = entry.stat().st_size
                elif entry.is_symlink() and not entry.is_dir():
                    problems.append(f"{entry.name}: a link to {os.readlink(entry.path)}, which is not there")  # noqa: PTH115
            except OSError as error:
                problems.append(f"{entry.name}: {error.strerror}")
    return sizes


def _config(folder: Path, problems: List[str]) -> Optional[Json]:
    found = _object(folder / "config.json", CONFIG_BYTES, problems)
    return None if found is None else chosen(found)


def chosen(config: Json) -> Json:
    """The keys of a configuration that say what can run it, those of its text model too."""
    kept: Json = {key: config[key] for key in KEYS if key in config}
    for key in NESTED:
        if isinstance(config.get(key), dict):
            kept[key] = {inner: config[key][inner] for inner in KEYS if inner in config[key]}
    return kept


def _object(path: Path, limit: int, problems: List[str]) -> Optional[Json]:
    """A JSON object; None, and why in ``problems``, where it is none. A file that is not there is no problem."""
    if not path.exists():
        if path.name == "config.json":
            problems.append("config.json is not there")
        return None
    try:
        found = json.loads(read_start(str(path), limit))
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{path.name}: {_why(error)}")
        return None
    if not isinstance(found, dict):
        problems.append(f"{path.name}: not a JSON object")
        return None
    return found


def _why(error: BaseException) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else f"not JSON: {error}"


def _index(folder: Path, sizes: Dict[str, int], problems: List[str]) -> Optional[Json]:
    """The shards that there should be against those that are; None without safetensors and without an index."""
    files = {name for name in sizes if name.endswith(".safetensors")}
    said = _object(folder / INDEX, INDEX_BYTES, problems)
    places = said.get("weight_map") if said else None
    wanted: Dict[str, Set[str]] = {}
    if isinstance(places, dict):
        for tensor, name in places.items():
            if isinstance(name, str):
                wanted.setdefault(name, set()).add(tensor)
    elif said is not None:
        problems.append(f"{INDEX}: no weight_map")
    if not files and not wanted:
        return None
    expected = set(wanted) or numbered(files)
    short = []
    for name in sorted(files & expected if expected else files):
        why = _weights_problem(folder / name, sizes[name], wanted.get(name, set()))
        if why:
            problems.append(f"{name}: {why}")
            short.append(name)
    missing = sorted(expected - files)
    problems += [f"{name}: not there" for name in missing]
    return {"shards": len(expected or files), "missing": missing, "short": short}


def numbered(files: Set[str]) -> Set[str]:
    """All shards of ``model-00001-of-00004.safetensors`` and its like; empty where no file is named so."""
    found: Set[str] = set()
    for name in files:
        match = SPLIT.search(name)
        if match and 0 < int(match[2]) <= 10000:
            stem = name[: match.start()]
            found |= {f"{stem}-{one:05}-of-{match[2]}.safetensors" for one in range(1, int(match[2]) + 1)}
    return found | files if found else set()


def _weights_problem(path: Path, size: int, tensors: Set[str]) -> Optional[str]:
    try:
        found = read_header(path)
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    if found.size != size:
        return f"{size:,} bytes, its header asks for {found.size:,}"
    lacking = sorted(tensors - found.tensors)
    return (
        f"the index says that it holds {lacking[0]} ({len(lacking)} in all), it does not" if lacking else None
    )


def read_header(path: Path) -> Weights:
    """The header of a safetensors file; ValueError with what is wrong with it."""
    with path.open("rb") as file:
        head = file.read(8)
        if len(head) < 8:
            raise ValueError(f"{len(head)} bytes, no header")
        (length,) = struct.unpack("<Q", head)
        if length > HEADER_BYTES:
            whole = head + file.read(32)
            raise ValueError(
                "a git-lfs pointer, not the weights" if whole.startswith(LFS) else "not a safetensors file"
            )
        text = file.read(length)
    if len(text) < length:
        raise ValueError(f"cut short in its header: {8 + len(text):,} bytes")
    try:
        header = json.loads(text)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError):
        raise ValueError("its header is damaged") from None
    return Weights(set(entries), 8 + length + end)


def filesystem(path: str) -> Optional[str]:
    """The type of the file system that holds a path: ``tmpfs``, ``ext4`` …"""
    from fleetctl.agent.host.hardware import mount_of

    found = mount_of(path)
    return found.fstype if found else None
