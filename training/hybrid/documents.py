"""What the hybrid model reads: functions and docstrings of installed packages, as questions and answers."""

from __future__ import annotations

import ast
import hashlib
import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SHORTEST, LONGEST = 40, 1200
"""Characters of an answer."""
BATCH = 64
LARGEST_FILE = 400_000


@dataclass(frozen=True)
class Document:
    """One question and its answer."""

    prompt: str
    answer: str


def chat(prompt: str) -> str:
    """The prompt up to where the answer starts, as the checkpoint's chat template puts it."""
    return f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


def read(
    folders: Sequence[Path], most_bytes: int, most: int, seconds: float, seed: int = 0
) -> list[Document]:
    """Up to ``most`` documents from ``*.py`` under the folders, in an order that the seed gives; none twice.

    Stops after ``most_bytes`` of source or ``seconds``, whichever is first.
    """
    files = sorted({file for folder in folders for file in folder.rglob("*.py") if file.is_file()})
    random.Random(seed).shuffle(files)
    chosen, size = [], 0
    for file in files:
        length = file.stat().st_size
        if size >= most_bytes:
            break
        if length <= LARGEST_FILE:
            chosen.append(file)
            size += length
    found: dict[str, Document] = {}
    started = time.monotonic()
    parts = [chosen[start : start + BATCH] for start in range(0, len(chosen), BATCH)]
    with ProcessPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
        for documents in pool.map(_of_files, parts):
            for one in documents:
                found.setdefault(hashlib.sha256(one.answer.encode()).hexdigest(), one)
            if len(found) >= most or time.monotonic() - started > seconds:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    kept = list(found.values())[:most]
    random.Random(seed).shuffle(kept)
    return kept


def _of_files(files: Sequence[Path]) -> list[Document]:
    found = []
    for file in files:
        try:
            source = file.read_text(encoding="utf-8")
            found += [one for one in of_source(source, file.stem) if _is_usable(one)]
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return found


def of_source(source: str, name: str) -> Iterator[Document]:
    """The documents of one module: its docstring, and each function that has one. SyntaxError as ``ast.parse``."""
    tree = ast.parse(source)
    text = ast.get_docstring(tree)
    if text:
        yield Document(f"What is the Python module {name} for?", text)
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            said = (ast.get_docstring(node) or "").strip().split("\n")[0].strip()
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            body = "\n".join(line[node.col_offset :] for line in lines[first - 1 : node.end_lineno])
            asked = f"Write the Python function {node.name}."
            yield Document(f"{asked} {said}" if said else asked, f"```python\n{body}\n```")
        elif isinstance(node, ast.ClassDef) and (text := ast.get_docstring(node)):
            yield Document(f"What is the Python class {node.name}?", text)


def _is_usable(one: Document) -> bool:
    return (
        SHORTEST <= len(one.answer) <= LONGEST
        and len(one.prompt) <= 240
        and "<|" not in one.prompt + one.answer
    )
