"""The requests of a round: prompts in their order, filled up to a length, turn by turn where there are turns. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetctl.bench.client import Ask
from fleetctl.bench.points import Planned
from fleetctl.bench.prompts import Message, Prompt
from fleetctl.bench.record import Request
from fleetctl.bench.suite import Suite

WORDS = (
    "The {0} {1} in row {2} holds {3} units; its {4} was checked on day {5} and found {6}.",
    ("red", "blue", "grey", "small", "large", "old", "new", "third"),
    ("crate", "engine", "ledger", "valve", "cable", "sensor", "pump", "panel"),
    ("seal", "label", "weight", "length", "owner", "shelf", "date", "colour"),
    ("sound", "loose", "missing", "correct", "worn", "late", "doubtful", "fine"),
)
FIRST_GUESS = 3.5
"""Characters a token, until a server has told."""


@dataclass(frozen=True)
class Round:
    """Whose requests these are. ``characters``: of a token of this model, to fill prompts up by."""

    point: Planned
    suite: Suite
    prompts: Sequence[Prompt]
    characters: float = FIRST_GUESS

    def asks(self, number: int, trees: int = 0) -> Iterator[Ask]:
        """The requests of round ``number``, each prompt's next turns behind its first.

        The first of each prompt asks for the drafted ``trees`` of so many steps.
        """
        for copy in range(self.point.copies):
            for prompt in self.prompts:
                repeat = (number - 1) * self.point.copies + copy + 1
                yield self._first(prompt, repeat, number, warmup=False, trees=0 if copy else trees)

    def warmups(self, number: int) -> Iterator[Ask]:
        """Requests before those that count; each round begins with another prompt."""
        for index in range(self.suite.warmup):
            prompt = self.prompts[(number - 1 + index) % len(self.prompts)]
            yield self._first(prompt, index + 1, number, warmup=True)

    def _first(self, prompt: Prompt, repeat: int, number: int, *, warmup: bool, trees: int = 0) -> Ask:
        said = self._filled(prompt)
        ends = [index for index, message in enumerate(said) if message.role == "user"]
        turns = ends[-self.suite.turns :]
        history = [{"role": one.role, "content": one.content} for one in said[: turns[0] + 1]]
        many = len(turns) > 1 and not warmup

        def ask(turn: int, history: list[dict[str, str]]) -> Ask:
            def follow(request: Request) -> Ask | None:
                if not many or turn + 1 == len(turns) or request.error is not None:
                    return None
                between = said[turns[turn] + 1 : turns[turn + 1] + 1]
                answered = between[0].role == "assistant"
                answer = [] if answered else [{"role": "assistant", "content": request.text}]
                more = [{"role": one.role, "content": one.content} for one in between]
                return ask(turn + 1, [*history, *answer, *more])

            return Ask(
                prompt=f"{prompt.name}#{turn + 1}" if many else prompt.name,
                messages=history,
                max_tokens=self.suite.max_tokens,
                kind=prompt.kind,
                point=self.point.id,
                repeat=repeat,
                round=number,
                warmup=warmup,
                seed=self.suite.seed,
                trees=trees,
                follow=follow,
            )

        return ask(0, history)

    def _filled(self, prompt: Prompt) -> list[Message]:
        messages = prompt.conversation()
        if not self.point.context_tokens:
            return messages
        there = sum(len(message.content) for message in messages)
        wanted = round(self.point.context_tokens * self.characters) - there
        if wanted <= 0:
            return messages
        last = max(index for index, message in enumerate(messages) if message.role == "user")
        text = f"{filler(wanted, f'{self.suite.seed} {prompt.name}')}\n\n{messages[last].content}"
        return [
            *messages[:last],
            Message(role="user", content=text),
            *messages[last + 1 :],
        ]


def calibration(max_characters: int = 4000) -> Ask:
    """A request whose usage tells how many characters a token has: see :func:`characters_a_token`."""
    text = filler(max_characters, "calibration")
    return Ask("calibration", [{"role": "user", "content": text}], 1, warmup=True)


def characters_a_token(ask: Ask, request: Request) -> float:
    """Characters of a token by an answer's usage; the first guess where it says nothing."""
    length = sum(len(message["content"]) for message in ask.messages)
    return length / request.prompt_tokens if request.prompt_tokens else FIRST_GUESS


def filler(characters: int, seed: str) -> str:
    """Text of just so many characters, the same for the same seed."""
    draw = random.Random(seed)
    sentence, colours, things, parts, states = WORDS
    said: list[str] = []
    length = 0
    while length < characters:
        colour, thing, part = draw.choice(colours), draw.choice(things), draw.choice(parts)
        row, units, day = draw.randrange(1000), draw.randrange(1000), draw.randrange(365)
        said.append(sentence.format(colour, thing, row, units, part, day, draw.choice(states)))
        length += len(said[-1]) + 1
    return " ".join(said)[:characters]
