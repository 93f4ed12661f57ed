"""Documents as token ids: the tokenizer, rows for pretraining, and prompts that are kept apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.hybrid.documents import Document, chat
from training.hybrid.recipe import SPECIAL, HybridRecipe

STORE = "tokens.npz"
TOKENIZER = "tokenizer.json"
UNSEEN = "unseen-prompts.json"
BATCH = 10_000


@dataclass(frozen=True)
class Prepared:
    """Training and held-out rows int64 [n, length + 1], and prompts of documents by their ids."""

    rows: Tensor
    held_out: Tensor
    prompts: list[list[int]]
    unseen: list[list[int]]


def make_tokenizer(documents: Sequence[Document], vocabulary: int) -> Any:
    """A byte-level BPE tokenizer of at most ``vocabulary`` tokens, the special ones first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made: Any = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator((f"{one.prompt}\n{one.answer}" for one in documents), trainer)
    return made


def prepare(documents: Sequence[Document], recipe: HybridRecipe, folder: Path) -> dict[str, int]:
    """Write the tokenizer, all ids and the held-out prompts into ``folder``; what there is of each."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(documents[: recipe.tokenizer_documents], recipe.shape.vocab)
    tokenizer.save(str(folder / TOKENIZER))
    ids, lengths, prompts = [], [], []
    for start in range(0, len(documents), BATCH):
        part = documents[start : start + BATCH]
        asked = tokenizer.encode_batch([chat(one.prompt) for one in part])
        answered = tokenizer.encode_batch([f"{one.answer}<|im_end|>\n" for one in part])
        for question, answer in zip(asked, answered, strict=True):
            ids += [*question.ids, *answer.ids]
            lengths.append(len(question.ids) + len(answer.ids))
            prompts.append(len(question.ids))
    arrays = {
        "ids": np.asarray(ids, np.uint16),
        "lengths": np.asarray(lengths),
        "prompts": np.asarray(prompts),
    }
    np.savez_compressed(folder / STORE, allow_pickle=False, **arrays)
    unseen = [one for index, one in enumerate(documents) if index % recipe.held_out == 0]
    texts = [{"prompt": one.prompt, "kind": _kind(one)} for one in unseen[: recipe.validation_texts]]
    (folder / UNSEEN).write_text(json.dumps({"prompts": texts}, indent=1) + "\n")
    return {"documents": len(documents), "tokens": len(ids), "vocabulary": tokenizer.get_vocab_size()}


def load(folder: Path, recipe: HybridRecipe) -> Prepared:
    """What :func:`prepare` wrote, packed into rows that begin where a document does."""
    with np.load(folder / STORE) as stored:
        ids = stored["ids"].astype(np.int64)
        lengths, prompts = stored["lengths"], stored["prompts"]
    starts = np.cumsum(lengths) - lengths
    apart = np.arange(len(lengths)) % recipe.held_out == 0
    spans = list(zip(starts.tolist(), lengths.tolist(), prompts.tolist(), apart.tolist(), strict=True))
    rows = _packed(ids, [(start, length) for start, length, _, out in spans if not out], recipe.length + 1)
    held_out = _packed(ids, [(start, length) for start, length, _, out in spans if out], recipe.length + 1)
    asked: tuple[list[list[int]], list[list[int]]] = ([], [])
    for start, _, prompt, out in spans:
        if prompt <= recipe.prompt_limit:
            asked[out].append(ids[start : start + prompt].tolist())
    return Prepared(rows, held_out, *asked)


def _packed(ids: Any, spans: Sequence[tuple[int, int]], width: int) -> Tensor:
    """Rows of whole documents one after another, the last cut; spans of ids stand one after another too."""
    rows, row = [], np.empty(0, np.int64)
    for start, length in spans:
        row = np.concatenate((row, ids[start : start + length]))
        if len(row) >= width:
            rows.append(row[:width])
            row = np.empty(0, np.int64)
    if not rows:
        raise ValueError(f"the texts are too short for one row of {width} tokens: read more of them")
    return torch.from_numpy(np.stack(rows))


def _kind(one: Document) -> str:
    return "code" if one.answer.startswith("```") else "explain"
