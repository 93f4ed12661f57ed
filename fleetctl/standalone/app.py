"""The HTTP side: OpenAI's endpoints, health and metrics."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

from jinja2 import TemplateError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fleetctl.standalone.protocol import ApiError, Ask, ChatAsk, CompletionAsk, parse
from fleetctl.standalone.queue import Full, Place
from fleetctl.standalone.service import Answer, Job, Service
from fleetctl.standalone.shapes import Shape, wanted

_BODY_BYTES = 4 << 20
_RETRY_SECONDS = 1


def build(service: Service, name: str) -> Starlette:
    """The application that serves ``service`` under the model id ``name``."""
    started = int(time.time())

    async def health(_: Request) -> Response:
        if service.ready:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "starting: no generation has been made yet"}, 503)

    async def models(_: Request) -> Response:
        model = {"id": name, "object": "model", "created": started, "owned_by": "fleetctl"}
        return JSONResponse({"object": "list", "data": [model]})

    async def metrics(_: Request) -> Response:
        return Response(service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return ApiError(status, f"{request.method} {request.url.path} is not served here").response()

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/metrics", metrics),
            Route("/v1/models", models),
            Route("/v1/completions", _Generation(service, name, CompletionAsk), methods=["POST"]),
            Route("/v1/chat/completions", _Generation(service, name, ChatAsk), methods=["POST"]),
        ],
        exception_handlers={404: missing, 405: missing},
    )


class _Generation:
    """An endpoint that generates; an ASGI application, so that it knows when the client goes."""

    def __init__(self, service: Service, name: str, kind: type[Ask]) -> None:
        self.service = service
        self.name = name
        self.kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcomes = self.service.metrics.requests
        try:
            ask = parse(self.kind, await _body(Request(scope, receive)))
            job = self._job(ask)
            with self.service.queue.place() as place:
                finished = await _while_connected(receive, self._reply(ask, job, place, send))
            outcomes.labels("finished" if finished else "gone").inc()
        except Full:
            outcomes.labels("refused").inc()
            full = ApiError(
                429,
                f"{self.service.queue.limit} requests wait already; try again later",
                None,
                "queue_full",
                _RETRY_SECONDS,
            )
            await full.response()(scope, receive, send)
        except ApiError as error:
            outcomes.labels("refused").inc()
            await error.response()(scope, receive, send)

    def _job(self, ask: Ask) -> Job:
        """The request in tokens; ApiError where it does not fit this model or it is too early."""
        if not self.service.ready:
            raise ApiError(
                503, "the model is still loading; /health says when it is ready", None, "starting", 1
            )
        if ask.model is not None and ask.model != self.name:
            raise ApiError(
                404, f"there is no model '{ask.model}'; '{self.name}' is served", "model", "model_not_found"
            )
        prompt, field = self._prompt(ask)
        room = self.service.generator.longest - len(prompt)
        if not prompt:
            raise ApiError(400, f"'{field}' is empty", field)
        if room < 1:
            raise ApiError(
                400,
                f"'{field}' has {len(prompt)} tokens; prompt and answer may have "
                f"{self.service.generator.longest} together",
                field,
                "context_length_exceeded",
            )
        tokens, bound = wanted(ask, room)
        if tokens > room:
            raise ApiError(
                400,
                f"'{bound}' is {tokens}, and {room} tokens are left behind the prompt's {len(prompt)}",
                bound,
                "context_length_exceeded",
            )
        return Job(prompt, tokens, ask.temperature, ask.top_p, ask.seed, ask.stops())

    def _prompt(self, ask: Ask) -> tuple[list[int], str]:
        text = self.service.text
        if isinstance(ask, ChatAsk):
            try:
                return text.encode(text.chat([message.flat() for message in ask.messages])), "messages"
            except TemplateError as error:
                raise ApiError(400, f"'messages': {error}", "messages") from None
        assert isinstance(ask, CompletionAsk)
        if isinstance(ask.prompt, str):
            return text.encode(ask.prompt), "prompt"
        size = self.service.generator.target.vocabulary
        for at, token in enumerate(ask.prompt):
            if not 0 <= token < size:
                raise ApiError(400, f"'prompt[{at}]' is {token}; tokens are 0 to {size - 1}", f"prompt[{at}]")
        return ask.prompt, "prompt"

    async def _reply(self, ask: Ask, job: Job, place: Place, send: Send) -> None:
        shape = Shape(isinstance(ask, ChatAsk), self.name, uuid.uuid4().hex, int(time.time()))
        answer = Answer(len(job.prompt))
        async with aclosing(self.service.answer(job, answer, place)) as pieces:
            if ask.stream:
                events = _Events(send)
                await events.open()
                for opening in shape.opening():
                    await events.event(opening)
                async for piece in pieces:
                    await events.event(shape.chunk(piece, None))
                await events.event(shape.chunk("", answer.finish))
                if ask.stream_options and ask.stream_options.include_usage:
                    await events.event(shape.last(answer.usage()))
                await events.close()
            else:
                text = "".join([piece async for piece in pieces])
                body = json.dumps(shape.whole(text, answer.finish, answer.usage())).encode()
                await _send(send, 200, "application/json", body)


class _Events:
    """Server-sent events of one answer."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def open(self) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def event(self, data: dict[str, Any]) -> None:
        await self._line(json.dumps(data), more=True)

    async def close(self) -> None:
        await self._line("[DONE]", more=False)

    async def _line(self, data: str, more: bool) -> None:
        await self._send(
            {"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": more}
        )


async def _send(send: Send, status: int, kind: str, body: bytes) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(request: Request) -> Any:
    """The JSON body; ApiError where it is none or too large."""
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > _BODY_BYTES:
            raise ApiError(413, f"the body has more than {_BODY_BYTES} bytes")
    try:
        return json.loads(raw)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Do ``work`` unless the client goes first, which cancels it; whether it was done."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.wait({working, watching})
