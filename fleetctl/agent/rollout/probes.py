"""One bounded question each to a service: who has its port, is it healthy, which model, does it generate."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional

from fleetctl.agent.host import net
from fleetctl.agent.rollout import apikey
from fleetctl.agent.units import systemd

RUNGS = ["process", "unit", "port", "health", "models", "generate"]
ASKS = {
    "process": "main process of {unit}",
    "unit": "{unit} active",
    "port": "{unit} listening on port {port}",
    "health": "GET /health on port {port}",
    "models": "{model} among /v1/models on port {port}",
    "generate": "a greedy completion of {tokens} tokens",
}
REQUEST_S = 10.0
GENERATE_NOW_S = 10.0
BODY_SHOWN = 500
LOADING = (None, 429, 502, 503, 504)


def rungs_of(target: Dict[str, Any]) -> List[str]:
    """The rungs that prove a service: all, or those that it can pass."""
    return list(target.get("rungs") or RUNGS)


def port_of(plan: Dict[str, Any], target: Optional[Dict[str, Any]]) -> int:
    """Where a plan's target listens."""
    return int((target or {}).get("port") or plan["port"])


class Answer(NamedTuple):
    """``ok``, or not yet, or ``never`` (waiting on is useless); ``text`` for people, ``body`` as evidence."""

    ok: bool
    text: str
    never: bool = False
    body: str = ""


def port(unit: str, number: int) -> Answer:
    """Whether the unit's own processes listen on the port; a stranger there is final."""
    owner = net.port_owner(number)
    if owner is None:
        return Answer(False, f"nothing listens on port {number}")
    if owner["unit"] == unit:
        return Answer(True, f"process {owner['pid']} of {unit} listens on port {number}")
    return Answer(False, f"port {number} is held by {describe(owner)}, not by {unit}", never=True)


def describe(owner: Dict[str, Any]) -> str:
    """A port's owner in words."""
    place = owner["unit"] or "no systemd service"
    return f"process {owner['pid']} ({place}): {owner['command'][:200]}"


def health(number: int, timeout: float) -> Answer:
    """``/health``: 200 is healthy, 503 is loading."""
    status, body = net.http("GET", number, "/health", timeout=min(timeout, REQUEST_S))
    shown = _shown(status, body)
    if status == 200:
        return Answer(True, "GET /health: 200")
    return Answer(False, f"GET /health: {shown}", body=shown)


def models(number: int, target: Dict[str, Any], timeout: float) -> Answer:
    """``/v1/models`` names the target's model; another one there is final."""
    model = target.get("model_id")
    status, body = net.http(
        "GET", number, "/v1/models", timeout=min(timeout, REQUEST_S), key=apikey.of(target)
    )
    shown = _shown(status, body)
    if status != 200:
        return Answer(False, f"GET /v1/models: {shown}", body=shown)
    found = _model_ids(body)
    if found and (not model or model in found):
        return Answer(True, f"/v1/models has {model or found[0]}")
    if found:
        return Answer(False, f"/v1/models has {', '.join(found)}, not {model}", never=True, body=shown)
    return Answer(False, "/v1/models names no model yet", body=shown)


def _model_ids(body: bytes) -> List[str]:
    try:
        return [str(model["id"]) for model in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def generate(number: int, target: Dict[str, Any], timeout: float) -> Answer:
    """A short greedy completion that must bring every token asked for.

    An engine known to take ``ignore_eos`` is told so; from others the prompt must draw enough text. Fewer
    tokens are a failure, whatever the finish reason: a server that stops early answers everything else well.
    """
    wanted = int(target["probe"]["max_tokens"])
    request = {"prompt": target["probe"]["prompt"], "max_tokens": wanted, "temperature": 0}
    if target.get("model_id"):
        request["model"] = target["model_id"]
    if target.get("engine") == "sglang":
        request["ignore_eos"] = True
    status, body = net.http("POST", number, "/v1/completions", request, timeout, apikey.of(target))
    shown = _shown(status, body)
    if status != 200:
        never = status not in LOADING
        return Answer(False, f"POST /v1/completions: {shown}", never=never, body=shown)
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        brought = int((answer.get("usage") or {}).get("completion_tokens", -1))
        reason = choice.get("finish_reason")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return Answer(False, f"POST /v1/completions: not a completion: {shown}", never=True, body=shown)
    if brought >= wanted or (brought < 0 and reason == "length"):
        return Answer(True, f"{wanted} tokens generated", body=shown)
    said = f"{brought if brought >= 0 else 'an unknown number'} of {wanted} tokens, finish reason {reason}"
    return Answer(False, f"the completion stopped early: {said}", never=True, body=shown)


def _shown(status: Optional[int], body: bytes) -> str:
    text = " ".join(body[: BODY_SHOWN * 4].decode(errors="replace").split())[:BODY_SHOWN]
    if status is None:
        return text
    return f"{status} {text}".rstrip()


def running(properties: Dict[str, str]) -> bool:
    """Whether systemd runs the unit, or is about to."""
    return properties.get("ActiveState") in ("active", "activating", "reloading")


def passing(target: Dict[str, Any], number: int, generate_s: float) -> List[str]:
    """The rungs that a service passes just now, each asked once."""
    return [rung for rung in _passed(target, number, generate_s) if rung in rungs_of(target)]


def _passed(target: Dict[str, Any], number: int, generate_s: float) -> List[str]:
    unit = target["unit"]
    properties = systemd.show([unit])[unit]
    found = []
    if properties.get("MainPID", "0") != "0":
        found.append("process")
    if properties.get("ActiveState") == "active":
        found.append("unit")
    if not found or not port(unit, number).ok:
        return found
    found.append("port")
    if "health" not in rungs_of(target):
        return found
    if health(number, REQUEST_S / 2).ok:
        found.append("health")
    if models(number, target, REQUEST_S / 2).ok:
        found.append("models")
        if target.get("probe") and generate(number, target, min(generate_s, GENERATE_NOW_S)).ok:
            found.append("generate")
    return found
