"""The measured prompts are outside the training data, and the filter that keeps them out works."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from training.prompts import HERE, eval_prompts, template_prompts, validation_prompts, without_measured, words

TRAINED = [
    template
    for form in json.loads((HERE / "train_prompts.json").read_text())["forms"]
    for template in form["templates"]
]


def follows_a_form(prompt: str) -> bool:
    def pattern(template: str) -> str:
        return re.escape(template).replace(r"\{\}", ".+").replace(r"\{n\}", r"\d+")

    return any(re.fullmatch(pattern(template), prompt) for template in TRAINED)


def test_there_are_at_least_sixty_measured_prompts_of_every_kind_beside_the_demo() -> None:
    measured = [prompt for prompt in eval_prompts() if prompt.form != "demo"]
    assert len({prompt.prompt for prompt in measured}) == len(measured) >= 60
    assert set(Counter(prompt.kind for prompt in measured)) == {
        "code",
        "creative",
        "explain",
        "facts",
        "json",
        "list",
    }
    names = [prompt.name for prompt in eval_prompts() if prompt.form == "demo"]
    assert sorted(names) == ["arithmetic", "fibonacci", "haiku", "json_parse", "quicksort"]


def test_no_measured_prompt_is_written_from_a_form() -> None:
    trained = {" ".join(words(prompt)) for prompt in template_prompts(seed=0)}
    assert len(trained) > 5000
    for prompt in [*(p.prompt for p in eval_prompts()), *validation_prompts()]:
        assert " ".join(words(prompt)) not in trained


@pytest.mark.parametrize("subject", ["fibonacci", "quicksort", "2 + 2", "haiku about autumn"])
def test_the_subjects_of_the_demo_prompts_are_not_trained(subject: str) -> None:
    assert not [prompt for prompt in template_prompts(seed=0) if subject in prompt.lower()]


def test_new_forms_follow_no_trained_form_and_known_ones_do() -> None:
    for prompt in eval_prompts():
        if prompt.form != "demo":
            assert follows_a_form(prompt.prompt) == (prompt.form == "known"), prompt.prompt


def test_validation_prompts_are_not_measured_ones() -> None:
    assert not set(validation_prompts()) & {prompt.prompt for prompt in eval_prompts()}


def test_prompts_that_come_near_a_measured_one_are_dropped() -> None:
    near = [
        "what is OSMOSIS",
        "Please give me the git commands to undo my last commit, thanks!",
        "Could you explain how the quicksort algorithm works?",
        "Write a Fibonacci generator in Rust.",
    ]
    assert without_measured(near) == []
    assert without_measured(["What is friction?"]) == ["What is friction?"]
