"""``nvidia-smi``, asked within a time: its CSV by field, its header, its matrices. What it does not tell is None."""

from __future__ import annotations

import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fleetctl.agent.errors import AgentError
from fleetctl.agent.units import systemd

Row = Dict[str, Optional[str]]

UNKNOWN_FIELDS = 8
_UNKNOWN = re.compile(r'Field "([^"]+)" is not a valid field')
_CUDA = re.compile(r"CUDA Version\s*:\s*(\d+\.\d+)")
_ABSENT = re.compile(r"^(\[.*\]|N/A|)$")
_SGR = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"^GPU(\d+)$")


class Answer(NamedTuple):
    """The rows of a query; ``said``: the lines that are no rows; ``error``: why it failed; ``unknown`` fields."""

    rows: List[Row]
    said: List[str]
    error: Optional[str]
    unknown: List[str]


def ask(question: str, fields: Sequence[str], seconds: float) -> Answer:
    """A ``--query-…`` in CSV, all questions together within ``seconds``.

    A field that this driver does not know is left out and asked without (it ends the whole query otherwise). Cells
    come as they are, brackets too; the last field takes what is left of its line.
    """
    asked = list(fields)
    unknown: List[str] = []
    end = time.monotonic() + seconds
    while True:
        command = ["nvidia-smi", f"{question}={','.join(asked)}", "--format=csv,noheader,nounits"]
        try:
            done = systemd.run(command, _left(end))
        except (AgentError, OSError) as error:
            return Answer([], [], error.what if isinstance(error, AgentError) else str(error), unknown)
        refused = _UNKNOWN.search(done.stdout)
        if refused is None or refused[1] not in asked or len(unknown) >= UNKNOWN_FIELDS or len(asked) == 1:
            break
        asked.remove(refused[1])
        unknown.append(refused[1])
    rows, said = read_csv(done.stdout, asked)
    if not done.returncode:
        return Answer(rows, said, None, unknown)
    why = "; ".join([*said, *filter(None, done.stderr.splitlines())][:3])
    return Answer(rows, said, f"nvidia-smi ended with status {done.returncode}: {why}".rstrip(": "), unknown)


def read_csv(text: str, fields: Sequence[str]) -> Tuple[List[Row], List[str]]:
    """The lines that have a cell for each field, and the others."""
    rows: List[Row] = []
    said: List[str] = []
    for line in filter(str.strip, text.split("\n")):
        cells = line.split(", ", len(fields) - 1)
        if len(cells) == len(fields) and not (len(fields) == 1 and ": " in line):
            rows.append(dict(zip(fields, (cell.strip() for cell in cells))))
        else:
            said.append(line.strip())
    return rows, said


def _left(end: float) -> float:
    return max(0.1, round(end - time.monotonic(), 1))


def told(cell: Optional[str]) -> Optional[str]:
    """A cell's text; None for ``[N/A]``, ``[Not Supported]``, ``[Unknown Error]`` and the like."""
    return None if cell is None or _ABSENT.match(cell) else cell


def number(cell: Optional[str]) -> Optional[float]:
    """A cell's number, a decimal comma too; None where it tells none."""
    text = told(cell)
    try:
        return float(text.split()[0].replace(",", ".")) if text else None
    except (ValueError, IndexError):
        return None


def whole(cell: Optional[str]) -> Optional[int]:
    """A cell's number without its fraction."""
    found = number(cell)
    try:
        return None if found is None else int(found)
    except (ValueError, OverflowError):
        return None


def cuda_version(seconds: float) -> Optional[str]:
    """The newest CUDA that the driver supports, by ``--version``, else by the header; None where neither has it."""
    end = time.monotonic() + seconds
    for words in (["--version"], []):
        found = _CUDA.search(systemd.run(["nvidia-smi", *words], _left(end)).stdout)
        if found:
            return found[1]
    return None


def matrix(words: Sequence[str], seconds: float) -> Dict[str, str]:
    """A matrix of ``nvidia-smi topo``: ``{"0-1": "NODE"}``, the lower index first."""
    return read_matrix(systemd.run(["nvidia-smi", "topo", *words], seconds).stdout)


def read_matrix(text: str) -> Dict[str, str]:
    """The cells between GPUs of a matrix as ``nvidia-smi topo -m`` prints it; empty where it is none."""
    columns: List[Optional[int]] = []
    found: Dict[str, str] = {}
    for line in _SGR.sub("", text).splitlines():
        cells = [cell.strip() for cell in line.split("\t")]
        row = _gpu(cells[0])
        if not columns and cells[0] == "" and any(_gpu(cell) is not None for cell in cells):
            columns = [_gpu(cell) for cell in cells[1:]]
        elif columns and row is not None:
            for column, cell in zip(columns, cells[1:]):
                if column is not None and column > row and cell:
                    found[f"{row}-{column}"] = cell
    return found


def _gpu(cell: str) -> Optional[int]:
    found = _GPU.match(cell)
    return int(found[1]) if found else None


def value(cell: Optional[str], words: Dict[str, Any]) -> Any:
    """What a cell's word stands for; None for another word."""
    return words.get(told(cell) or "")
