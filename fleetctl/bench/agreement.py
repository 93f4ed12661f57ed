"""Whether services gave the same words: greedy decoding must, however the tokens were drafted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BEFORE, AFTER = 48, 32


@dataclass(frozen=True)
class Difference:
    """Where two answers to one prompt part: ``at`` characters they agree, ``words`` whole words of them.

    ``before``: the end of what both say; ``one_says``, ``other_says``: how each goes on, "" where it has ended.
    """

    prompt: str
    one: str
    other: str
    at: int
    words: int
    before: str
    one_says: str
    other_says: str


def difference(prompt: str, one: str, one_text: str, other: str, other_text: str) -> Difference | None:
    """The first difference of the answers of ``one`` and ``other``; None where they are the same."""
    if one_text == other_text:
        return None
    shorter = min(len(one_text), len(other_text))
    at = next((index for index in range(shorter) if one_text[index] != other_text[index]), shorter)
    same = one_text[:at]
    return Difference(
        prompt=prompt,
        one=one,
        other=other,
        at=at,
        words=len(same.split()),
        before=same[-BEFORE:],
        one_says=one_text[at : at + AFTER],
        other_says=other_text[at : at + AFTER],
    )


def among(prompt: str, texts: Sequence[tuple[str, str]]) -> Difference | None:
    """The first of ``(name, text)`` that differs from the first one."""
    for name, text in texts[1:]:
        found = difference(prompt, texts[0][0], texts[0][1], name, text)
        if found:
            return found
    return None


def against(reference: str, said: Mapping[str, Mapping[str, str]]) -> list[Difference]:
    """Each service's first difference from ``reference``, prompt by prompt; ``said``: texts by service and prompt.

    Where ``reference`` has no answer to a prompt, the first service that has one stands for it.
    """
    order = dict.fromkeys([reference, *said])
    found = []
    for name, texts in said.items():
        for prompt, text in texts.items():
            first = next(one for one in order if prompt in said.get(one, {}))
            found.append(difference(prompt, first, said[first][prompt], name, text))
    return [one for one in found if one]
