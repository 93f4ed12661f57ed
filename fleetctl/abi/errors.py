"""The one exception of this package."""

from __future__ import annotations


class AbiError(Exception):
    """A file that cannot be read for what it claims to be: ``what`` is wrong with it, and ``where`` (its path)."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what, where)
        self.what = what
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what
