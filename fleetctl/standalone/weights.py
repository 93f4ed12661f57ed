"""Reads ``model.safetensors`` and checks the shape of every tensor that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open

from fleetctl.standalone.errors import StartError


class Weights:
    """The tensors of one folder's ``model.safetensors``, converted to ``dtype`` as they are asked for."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.path = folder / "model.safetensors"
        self._dtype = dtype
        if not self.path.is_file():
            raise StartError(f"{self.path}: no such file")
        try:
            self._file = cast("Any", safe_open(self.path, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise StartError(f"{self.path}: not a readable safetensors file ({error})") from error
        self._names = frozenset(self._file.keys())

    def get(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor ``name``, which must have ``shape``; else ``StartError`` names file and tensor."""
        if name not in self._names:
            raise StartError(f"{self.path}: the tensor {name} is missing")
        tensor = self._file.get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise StartError(
                f"{self.path}: {name} has shape {list(tensor.shape)}, config.json says {list(shape)}"
            )
        converted: torch.Tensor = tensor.to(self._dtype)
        return converted
