"""Which command lines start a model server."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence

PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
MODULES = {
    "sglang.launch_server": "sglang",
    "fleetctl.standalone": "standalone",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
}
# Modules and scripts that serve only with the word `serve` behind them.
VERBS = {
    "sglang": "sglang",
    "sglang.cli.main": "sglang",
    "vllm": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
}
FILES = {"sglang/launch_server.py": "sglang", "openai/api_server.py": "vllm"}
PROGRAMS = {"llama-server", "ollama", "text-generation-launcher", "tritonserver", "trtllm-serve", "lmdeploy"}
DEFAULT_PORTS = {"sglang": 30000, "standalone": 30000, "vllm": 8000}
VALUED = {"-X", "-W", "--check-hash-based-pycs"}


def command(words: Sequence[str]) -> Optional[Dict[str, Any]]:
    """What a command line serves, or None where it starts no model server that is known here.

    ``{"engine": "sglang|standalone|vllm|other", "launcher": module or script, "program": the interpreter or the
    program itself, "script": path or None, "options": the interpreter's, "arguments": what comes after}``
    """
    if not words or not words[0]:
        return None
    name = words[0].rpartition("/")[2]
    if PYTHON.fullmatch(name):
        return _python(words)
    if name in VERBS and words[1:2] == ["serve"]:
        return _found(VERBS[name], f"{name} serve", words[0], words[0], [], words[2:])
    if name in PROGRAMS:
        return other(words[0], words[1:])
    return None


def command_within(words: Sequence[str]) -> Optional[Dict[str, Any]]:
    """As :func:`command`, past the words of programs that only start another (``env``, ``numactl``)."""
    for place in range(len(words)):
        found = command(words[place:])
        if found is not None:
            return found
    return None


def other(program: str, arguments: Sequence[str]) -> Dict[str, Any]:
    """A command line of which nothing is known: as :func:`command` says it."""
    return _found("other", program.rpartition("/")[2], program, None, [], arguments)


def port_of(found: Dict[str, Any]) -> Optional[int]:
    """The port that the arguments name, or else the engine's usual one."""
    words = [word or "" for word in found["arguments"]]
    said = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "--port"]
    said += [word[7:] for word in words if word.startswith("--port=")]
    if not said:
        return DEFAULT_PORTS.get(found["engine"])
    number = int(said[-1]) if re.fullmatch(r"[0-9]{1,5}", said[-1]) else 0
    return number if 0 < number < 65536 else None


def _python(words: Sequence[str]) -> Optional[Dict[str, Any]]:
    place = 1
    options: List[str] = []
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-m", "-c", "-"):
        width = 2 if words[place] in VALUED else 1
        options += words[place : place + width]
        place += width
    rest = list(words[place:])
    if rest[:1] == ["-m"] and len(rest) > 1:
        module = rest[1]
        if module in MODULES:
            return _found(MODULES[module], f"python -m {module}", words[0], None, options, rest[2:])
        if module in VERBS and rest[2:3] == ["serve"]:
            return _found(VERBS[module], f"python -m {module} serve", words[0], None, options, rest[3:])
        return None
    if not rest or rest[0].startswith("-"):
        return None
    name = rest[0].rpartition("/")[2]
    if name in VERBS and rest[1:2] == ["serve"]:
        return _found(VERBS[name], f"{name} serve", words[0], rest[0], options, rest[2:])
    for ending, engine in FILES.items():
        if rest[0].endswith(ending):
            return _found(engine, rest[0], words[0], rest[0], options, rest[1:])
    return None


def _found(
    engine: str,
    launcher: str,
    program: str,
    script: Optional[str],
    options: Sequence[str],
    arguments: Sequence[str],
) -> Dict[str, Any]:
    return {
        "engine": engine,
        "launcher": launcher,
        "program": program,
        "script": script,
        "options": list(options),
        "arguments": list(arguments),
    }
