"""One prompt measured against a running OpenAI-compatible server."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx

from fleetctl.errors import Exit, FleetError


@dataclass(frozen=True)
class Sample:
    """An answer and what it took.

    ``seconds``: from the request to the answer's end, reading the prompt included. ``accepted_length``: tokens
    committed by a verify pass, the target's own included; 1 without drafting.
    """

    text: str
    tokens: int
    seconds: float
    accepted_length: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the answer by the whole time."""
        return self.tokens / self.seconds


def measure(url: str, model: str, prompt: str, max_tokens: int, timeout: float = 300.0) -> Sample:
    """Ask the server at ``url`` for a greedy chat answer; FleetError where it gives none within ``timeout`` seconds."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    began = time.perf_counter()
    try:
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=timeout, trust_env=False)
        seconds = time.perf_counter() - began
        answer.raise_for_status()
    except httpx.HTTPStatusError as error:
        raise FleetError(
            f"HTTP {error.response.status_code} to a benchmark's prompt",
            url,
            "the answer's body says why",
            [error.response.text[:2000]],
            Exit.PREFLIGHT,
        ) from None
    except httpx.HTTPError as error:
        raise FleetError(
            f"no answer to a benchmark's prompt: {error!r}",
            url,
            "is the service up? `fleetctl status`",
            exit=Exit.UNREACHABLE,
        ) from None
    data = answer.json()
    usage = data["usage"]
    passes = usage.get("verify_passes", 0)
    accepted = usage.get("accepted_tokens", 0)
    return Sample(
        text=data["choices"][0]["message"]["content"],
        tokens=usage["completion_tokens"],
        seconds=seconds,
        accepted_length=(accepted + passes) / passes if passes else 1.0,
    )
