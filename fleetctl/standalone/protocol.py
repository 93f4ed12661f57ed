"""Requests of the OpenAI API as this server takes them, and the shape of its refusals.

Fields that cannot change the answer are accepted and ignored. Fields that would change it and are not
implemented are refused by name, except at the value that asks for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

HARMLESS = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0),
    "function_call": (None, "none"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "n": (None, 1),
    "presence_penalty": (None, 0),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
}


MOST_TREES = 64


class RequestError(Exception):
    """A request that is refused: HTTP ``status``, and ``param``, the field it is about."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        kind: str = "invalid_request_error",
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


StopText = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class StreamOptions(BaseModel):
    """What a stream carries beside text."""

    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False


class Generation(BaseModel):
    """The fields that both endpoints have; ``trees`` asks for the drafted trees of so many first passes."""

    model_config = ConfigDict(extra="forbid")
    model: str
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: StopText | Annotated[list[StopText], Field(max_length=16)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    trees: int = Field(0, ge=0, le=MOST_TREES)

    def stops(self) -> list[str]:
        """The stop strings, none or more."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop


class CompletionRequest(Generation):
    """Body of ``POST /v1/completions``; ``max_tokens`` is 16 unless given, as OpenAI has it."""

    prompt: str | list[int]
    max_tokens: int | None = Field(None, ge=1)


class TextPart(BaseModel):
    """One piece of a message's content."""

    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a chat."""

    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    def text(self) -> str:
        """The content as one string."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(Generation):
    """Body of ``POST /v1/chat/completions``; without a limit the answer may fill the context."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)


R = TypeVar("R", bound=Generation)


def parse(kind: type[R], body: object) -> R:
    """``body`` (decoded JSON) as a request of ``kind``; ``RequestError`` names the field at fault."""
    if not isinstance(body, dict):
        raise RequestError("The body must be a JSON object.")
    fields = {}
    for name, value in body.items():
        if name in NEUTRAL:
            if not any(_same(value, neutral) for neutral in NEUTRAL[name]):
                raise RequestError(
                    f"{name} is not supported by this server: leave it out.",
                    param=name,
                    code="unsupported_parameter",
                )
        elif name not in HARMLESS:
            fields[name] = value
    try:
        return kind.model_validate(fields, strict=True)
    except ValidationError as error:
        raise _refusal(error) from error


def _same(value: Any, neutral: Any) -> bool:
    """Equal, a truth value never to a number: ``logprobs`` 0 asks for something, false does not."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)


def _refusal(error: ValidationError) -> RequestError:
    errors = error.errors(include_url=False, include_context=False)
    same_field = [found for found in errors if found["loc"][0] == errors[0]["loc"][0]]
    first = max(same_field, key=lambda found: len(found["loc"]))
    path = [part for part in first["loc"] if isinstance(part, int) or not _is_type_name(part)]
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    if first["type"] == "extra_forbidden":
        return RequestError(
            f"{param} is not a field that this server knows.", param=param, code="unknown_parameter"
        )
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return RequestError(f"{param}: {first['msg']}.", param=param, code=code)


def _is_type_name(part: str) -> bool:
    """Whether a location's part is pydantic's name for a union's branch instead of a field's."""
    return part in {"str", "constrained-str"} or "[" in part
