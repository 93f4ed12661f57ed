"""What clients may ask, in OpenAI's shape, and the errors they get, which name the field."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError
from starlette.responses import JSONResponse

# Fields that would change the answer and are not served, with the values that leave it as it is.
_UNSERVED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "top_k": (0, -1),
    "min_p": (0,),
    "ignore_eos": (False,),
    "min_tokens": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "audio": (),
    "modalities": (["text"],),
}


class ApiError(Exception):
    """A request that is not answered: ``status``, the message, the field it is about and OpenAI's code."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The error object that clients of OpenAI's interface read."""
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The error as an answer."""
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else None
        return JSONResponse(self.body(), self.status, headers)


class StreamOptions(BaseModel):
    """``include_usage``: whether a last event carries the usage."""

    include_usage: bool = False


class Ask(BaseModel):
    """What both kinds of request share. Fields that are not known are passed over."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StrictStr | Annotated[list[StrictStr], Field(max_length=4)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None

    def stops(self) -> list[str]:
        """The stop strings; empty ones stop nothing."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [stop for stop in given if stop]


class CompletionAsk(Ask):
    """``/v1/completions``."""

    prompt: StrictStr | list[StrictInt]


class Part(BaseModel):
    """A part of a message; only text is served."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: StrictStr | list[Part]

    def flat(self) -> dict[str, str]:
        """The turn as the chat template reads it."""
        content = self.content
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        return {"role": self.role, "content": text}


class ChatAsk(Ask):
    """``/v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None


AnyAsk = TypeVar("AnyAsk", bound=Ask)


def parse(kind: type[AnyAsk], body: Any) -> AnyAsk:
    """The request of this kind in a JSON body; ApiError naming the field otherwise."""
    if not isinstance(body, dict):
        raise ApiError(400, "the body is not a JSON object")
    given = {name: value for name, value in body.items() if value is not None}
    for name, neutral in _UNSERVED.items():
        if name in given and not any(_same(given[name], value) for value in neutral):
            raise ApiError(
                400,
                f"'{name}' is not served here with this value; leave it out"
                + (f" or give {neutral[0]!r}" if neutral else ""),
                name,
                "unsupported_parameter",
            )
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = max(error.errors(include_url=False), key=lambda found: len(found["loc"]))
        param = _path(first["loc"])
        raise ApiError(400, f"'{param}': {first['msg']}", param, str(first["type"])) from None


def _same(given: Any, neutral: Any) -> bool:
    """Equal, and not a truth value beside a number."""
    return bool(given == neutral) and isinstance(given, bool) == isinstance(neutral, bool)


def _path(location: tuple[int | str, ...]) -> str:
    """``messages[0].content`` from pydantic's location, without the names of a union's branches."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() and step not in ("str", "int"):
            path += f".{step}" if path else step
    return path
