"""A model folder: ``config.json`` and ``model.safetensors``, read with errors that name the file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor


class ModelError(Exception):
    """A model folder that cannot be served; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Folder:
    """A model's folder: its path, its ``config.json`` and its tensors by name in the wanted dtype."""

    path: Path
    config: dict[str, Any]
    tensors: dict[str, Tensor]

    def tensor(self, name: str) -> Tensor:
        """The tensor called ``name``; ModelError where the file lacks it."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelError(f"{self.path / 'model.safetensors'}: has no tensor {name}") from None


def read_config(path: Path) -> dict[str, Any]:
    """``config.json`` of the folder; ModelError where it or the weights are missing or broken."""
    file = path / "config.json"
    try:
        config: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise ModelError(f"{file}: no such file; give a model's folder") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: {error}") from None
    if not (path / "model.safetensors").is_file():
        raise ModelError(f"{path / 'model.safetensors'}: no such file")
    return config


def read_folder(path: Path, dtype: torch.dtype) -> Folder:
    """The whole folder; ModelError where something is missing or broken."""
    config = read_config(path)
    file = path / "model.safetensors"
    try:
        with safe_open(file, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name).to(dtype) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file}: {error}") from None
    return Folder(path, config, tensors)


def rope_theta(config: dict[str, Any]) -> float:
    """The rotary base, from where older and newer configs keep it."""
    return float((config.get("rope_parameters") or config)["rope_theta"])
