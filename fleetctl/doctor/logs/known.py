"""Facts and BOM as a claim's check asks for them; keys that are missing or odd are as if nothing were known."""

from __future__ import annotations

from typing import Any

from fleetctl.doctor.rule import Context, Json, ServiceView
from fleetctl.environment.view import numbers, runs_on


class Known:
    """What is known of the host, its cards and the environment."""

    def __init__(self, context: Context) -> None:
        self.facts: Json = context.facts
        self.bom: Json | None = context.bom
        self.service: ServiceView | None = context.service

    @property
    def gpus(self) -> list[Json]:
        """The service's cards where it is known, else all."""
        found = _mapping(self.facts.get("gpus")).get("gpus")
        cards: list[Json] = [one for one in found or [] if isinstance(one, dict)]
        mine = set(self.service.gpus) if self.service else set()
        return [one for one in cards if one.get("index") in mine] or cards

    @property
    def apps(self) -> list[Json]:
        """Processes that hold GPU memory."""
        found = _mapping(self.facts.get("gpus")).get("apps")
        return [one for one in found or [] if isinstance(one, dict)]

    @property
    def capabilities(self) -> list[str]:
        """``12.0`` …, each once."""
        return list(dict.fromkeys(str(one["compute_cap"]) for one in self.gpus if one.get("compute_cap")))

    @property
    def toolkit(self) -> str:
        """The version of the nvcc found first; ``""`` for none."""
        found = [one for one in self.facts.get("toolkits") or [] if isinstance(one, dict)]
        first = next((one for one in found if one.get("default")), found[0] if found else {})
        return str(first.get("nvcc") or first.get("version") or "")

    @property
    def models(self) -> dict[str, Json]:
        """Model folders by path."""
        return {
            path: one for path, one in _mapping(self.facts.get("models")).items() if isinstance(one, dict)
        }

    @property
    def versions(self) -> dict[str, str]:
        """The environment's distributions."""
        found = (self.bom or {}).get("distributions") or []
        return {
            str(one["name"]): str(one.get("version"))
            for one in found
            if isinstance(one, dict) and "name" in one
        }

    @property
    def extensions(self) -> list[dict[str, Any]]:
        """The environment's compiled extensions."""
        return [one for one in (self.bom or {}).get("extensions") or [] if isinstance(one, dict)]

    @property
    def gpu_code(self) -> dict[str, list[str]]:
        """Extensions with code for GPUs: ``sass:120a`` …"""
        return {str(one.get("path")): list(one["gpu"]) for one in self.extensions if one.get("gpu")}

    def kernel_lines(self, kind: str) -> list[str]:
        """Lines of the kernel's log: ``oom`` or ``xid``."""
        found = _mapping(self.facts.get("kernel_log")).get(kind)
        return [str(one.get("line")) for one in found or [] if isinstance(one, dict)]

    @property
    def variants(self) -> dict[str, list[str]]:
        """Extensions with code for GPUs, those of one distribution and name together: one for each architecture."""
        found: dict[str, list[str]] = {}
        for one in self.extensions:
            if one.get("gpu"):
                path = str(one.get("path"))
                found.setdefault(f"{one.get('distribution')} {path.rsplit('/', 1)[-1]}", []).append(path)
        return found

    def runs(self, paths: list[str], card: str) -> bool:
        """Whether a card of this capability runs the code of one of them, of its own architecture or as PTX."""
        wanted = card.replace(".", "")
        code = {str(one) for path in paths for one in self.gpu_code[path]}
        own = {f"sass:{wanted}a", f"sass:{wanted}f", f"sass:{wanted[:-1]}0f"}
        return bool(code & own) or runs_on(code, f"sass:{wanted}")

    def lacking(self, symbol: str) -> list[str]:
        """Extensions that want a symbol which nothing gives."""
        return [str(one.get("path")) for one in self.extensions if symbol in (one.get("undefined") or ())]

    def missing(self, soname: str) -> list[str]:
        """Extensions that want a library which nothing gives."""
        return [str(one.get("path")) for one in self.extensions if soname in (one.get("missing") or ())]

    def extensions_named(self, name: str) -> list[str]:
        """Extensions of that file name that find all they want."""
        return [
            str(one.get("path"))
            for one in self.extensions
            if str(one.get("path", "")).endswith(name) and not one.get("undefined") and not one.get("missing")
        ]

    def owner(self, path: str) -> str:
        """The distribution and version that an extension is of."""
        name = next((one.get("distribution") for one in self.extensions if one.get("path") == path), None)
        return f"{name} {self.versions.get(str(name), '')}".strip() if name else ""

    def has_library(self, soname: str) -> bool:
        """Whether a library is in the loader's cache or given by the environment."""
        libraries = _mapping(self.facts.get("libraries"))
        given = {one.get("soname") for one in self.extensions}
        return bool(libraries.get(soname)) or soname in given

    @staticmethod
    def numbers(version: str) -> tuple[int, ...]:
        """``(12, 9)`` of ``12.9``."""
        return numbers(version)


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
