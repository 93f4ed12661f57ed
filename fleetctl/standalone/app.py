"""The HTTP side: routes, refusals and streams over the engine's queue."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fleetctl.standalone.answers import Answer, ChatAnswer, CompletionAnswer
from fleetctl.standalone.contract import Counts, Sampling
from fleetctl.standalone.engine import Delta, Engine, Job, Model, QueueFull
from fleetctl.standalone.metrics import Metrics
from fleetctl.standalone.protocol import ChatRequest, CompletionRequest, Generation, RequestError, parse

MAX_BODY = 4 * 2**20
POLL_SECONDS = 0.2


class Api:
    """The endpoints of one engine that serves under the name ``served``."""

    def __init__(self, engine: Engine, metrics: Metrics, served: str) -> None:
        self._engine = engine
        self._metrics = metrics
        self._served = served
        self._created = int(time.time())

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/metrics", self.metrics),
                Route("/v1/models", self.models),
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ],
            exception_handlers={RequestError: _refuse, HTTPException: _refuse_http, Exception: _fail},
        )

    async def health(self, _: Request) -> Response:
        """200 once the warm-up generation has been made, 503 before."""
        ready = self._engine.model is not None
        return JSONResponse({"status": "ok" if ready else "loading"}, 200 if ready else 503)

    async def metrics(self, _: Request) -> Response:
        """Prometheus's text format."""
        return Response(self._metrics.render(self._engine), media_type=CONTENT_TYPE_LATEST)

    async def models(self, _: Request) -> Response:
        """The one model; it is listed before it is ready, as ``/health`` says which, and then with its context."""
        entry: dict[str, str | int] = {
            "id": self._served,
            "object": "model",
            "created": self._created,
            "owned_by": "fleetctl",
        }
        if self._engine.model is not None:
            entry["max_model_len"] = self._engine.model.context
        return JSONResponse({"object": "list", "data": [entry]})

    async def completions(self, request: Request) -> Response:
        """``POST /v1/completions``."""
        body = parse(CompletionRequest, await _json(request))
        model = self._model(body)
        prompt = model.codec.encode(body.prompt) if isinstance(body.prompt, str) else body.prompt
        if not prompt:
            raise RequestError("prompt is empty.", param="prompt", code="invalid_value")
        unknown = [token for token in prompt if not 0 <= token < model.vocabulary]
        if unknown:
            raise RequestError(
                f"prompt: {unknown[0]} is not a token of this model (0 to {model.vocabulary - 1}).",
                param="prompt",
                code="invalid_value",
            )
        limit = _limit(model, prompt, body.max_tokens or 16, prompt_field="prompt", limit_field="max_tokens")
        return await self._answer(request, body, prompt, limit, CompletionAnswer(self._served, model.codec))

    async def chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        body = parse(ChatRequest, await _json(request))
        model = self._model(body)
        messages = [{"role": message.role, "content": message.text()} for message in body.messages]
        prompt = model.codec.encode_chat(messages)
        asked = body.max_completion_tokens or body.max_tokens
        field = "max_completion_tokens" if body.max_completion_tokens else "max_tokens"
        limit = _limit(model, prompt, asked, prompt_field="messages", limit_field=field)
        return await self._answer(request, body, prompt, limit, ChatAnswer(self._served, model.codec))

    def _model(self, body: Generation) -> Model:
        if body.model != self._served:
            raise RequestError(
                f"The model {body.model!r} is not served here; {self._served!r} is.",
                status=404,
                param="model",
                code="model_not_found",
            )
        if self._engine.model is None:
            raise RequestError(
                "The model is still being loaded.",
                status=503,
                kind="server_error",
                code="loading",
                headers={"Retry-After": "1"},
            )
        return self._engine.model

    async def _answer(
        self, request: Request, body: Generation, prompt: list[int], limit: int, answer: Answer
    ) -> Response:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        if body.trees and body.stream and not with_usage:
            raise RequestError(
                "trees come with the usage: set stream_options.include_usage.",
                param="trees",
                code="invalid_value",
            )
        job = Job(
            prompt=prompt,
            max_tokens=limit,
            sampling=Sampling(
                temperature=1.0 if body.temperature is None else body.temperature,
                top_p=1.0 if body.top_p is None else body.top_p,
                seed=body.seed,
            ),
            stops=body.stops(),
            ignore_eos=body.ignore_eos,
            loop=asyncio.get_running_loop(),
            counts=Counts(describe=body.trees),
        )
        try:
            self._engine.submit(job)
        except QueueFull:
            raise RequestError(
                "Too many requests wait: try again later.",
                status=429,
                kind="rate_limit_error",
                code="queue_full",
                headers={"Retry-After": "1"},
            ) from None
        deltas = self._deltas(request, job)
        if body.stream:
            return _Stream(_events(deltas, job, answer, with_usage), self._engine, job)
        text, reason = "", ""
        async with aclosing(deltas):
            async for delta in deltas:
                text, reason = text + delta.text, delta.finish_reason or reason
        if not reason:
            return Response(status_code=499)
        if reason == "error":
            raise RequestError(
                "The generation failed; the server's log says why.", status=500, kind="server_error"
            )
        return JSONResponse(answer.whole(text, reason, job))

    async def _deltas(self, request: Request, job: Job) -> AsyncGenerator[Delta]:
        """The job's deltas up to its last; ends early, and frees the job's place, when the client is gone."""
        try:
            while True:
                try:
                    delta = await asyncio.wait_for(job.deltas.get(), POLL_SECONDS)
                except TimeoutError:
                    if await request.is_disconnected():
                        return
                    continue
                yield delta
                if delta.finish_reason:
                    return
                if await request.is_disconnected():
                    return
        finally:
            self._engine.cancel(job)


class _Stream(StreamingResponse):
    """A stream that frees its job's place however it ends, even before its first event."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], engine: Engine, job: Job) -> None:
        super().__init__(events)
        self._engine = engine
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._engine.cancel(self._job)


async def _events(
    deltas: AsyncIterator[Delta], job: Job, answer: Answer, with_usage: bool
) -> AsyncIterator[str]:
    async for delta in deltas:
        if delta.finish_reason == "error":
            error = RequestError("The generation failed; the server's log says why.", kind="server_error")
            yield _event(error.body)
            return
        if delta.text:
            yield _event(answer.piece(delta.text, None))
        if delta.finish_reason:
            yield _event(answer.piece("", delta.finish_reason))
            if with_usage:
                yield _event(answer.last(job))
            yield "data: [DONE]\n\n"


def _event(content: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


async def _json(request: Request) -> object:
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > MAX_BODY:
            raise RequestError(f"The body is longer than {MAX_BODY} bytes.", status=413, code="body_too_long")
    try:
        return json.loads(raw)
    except ValueError as error:
        raise RequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from error


def _limit(model: Model, prompt: list[int], asked: int | None, *, prompt_field: str, limit_field: str) -> int:
    """Tokens the answer may have; ``RequestError`` when they do not fit behind the prompt."""
    room = model.context - len(prompt)
    if room < 1:
        raise RequestError(
            f"{prompt_field}: {len(prompt)} tokens leave no room for an answer in {model.context}.",
            param=prompt_field,
            code="context_length_exceeded",
        )
    if asked is not None and asked > room:
        raise RequestError(
            f"{limit_field}: {asked} tokens after {len(prompt)} of prompt exceed the context of "
            f"{model.context}; at most {room} fit.",
            param=limit_field,
            code="context_length_exceeded",
        )
    return asked or room


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse(error.body, error.status, headers=error.headers)


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return await _refuse(request, RequestError(message, status=error.status_code, headers=error.headers))


async def _fail(request: Request, _: Exception) -> Response:
    return await _refuse(request, RequestError("Internal error.", status=500, kind="server_error"))
