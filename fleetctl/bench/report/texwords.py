"""Any text as LaTeX: its own characters escaped, and every other one declared that the fonts do not have."""

from __future__ import annotations

import re
import unicodedata

ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_\allowbreak{}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "'": "'", "`": r"\textasciigrave{}", "-": "-", "\t": " ", "\n": " ",
}  # fmt: skip
KNOWN = {
    "×": r"\ensuremath{\times}", "≈": r"\ensuremath{\approx}", "·": r"\textperiodcentered{}",
    "–": r"\textendash{}", "—": r"\textemdash{}",
    "…": r"\dots{}", "“": "``", "”": "''", "‘": "`", "’": "'", "→": r"\ensuremath{\rightarrow}",
    "←": r"\ensuremath{\leftarrow}", "≤": r"\ensuremath{\leq}", "≥": r"\ensuremath{\geq}", "−": r"\ensuremath{-}",
    "\u00a0": "~", "\u202f": r"\,", "\u2009": r"\,", "␣": r"\textvisiblespace{}", "⏎": r"\ensuremath{\hookleftarrow}",
    "⇥": r"\ensuremath{\mapsto}", "∅": r"\ensuremath{\emptyset}", "�": r"\fbox{?}", "°": r"\ensuremath{^\circ}",
    "µ": r"\ensuremath{\mu}", "μ": r"\ensuremath{\mu}", "±": r"\ensuremath{\pm}", "²": r"\ensuremath{^2}",
}  # fmt: skip
BREAK = "\u200b"
LONG = re.compile(r"[^\s_/=]{25,}")
PIECE = re.compile(r".{1,8}", re.DOTALL)
ACCENTED = range(0xC0, 0x180)
"""Letters of Latin-1 and Latin Extended-A, which T1 fonts have or compose."""


def escape(text: str) -> str:
    """``text`` as it shows in a paragraph; long words may break after ``_``, ``/`` and ``=``."""
    found = []
    for char in _breakable(text):
        if char in ESCAPES:
            found.append(ESCAPES[char])
        elif char in "/=":
            found.append(char + r"\allowbreak{}")
        elif char == BREAK:
            found.append(r"\allowbreak{}")
        elif char in KNOWN:
            found.append(KNOWN[char])
        elif char.isascii():
            found.append(char if char.isprintable() else r"\fbox{?}")
        elif char.isprintable():
            found.append(char)
        else:
            found.append(" " if char.isspace() else r"\fbox{?}")
    return "".join(found).replace("--", "-{}-")


def _breakable(text: str) -> str:
    """Words that are longer than half a line, such as digests, may break anywhere."""
    return LONG.sub(lambda found: BREAK.join(PIECE.findall(found.group())), text.replace(BREAK, ""))


def declarations(body: str) -> str:
    """A declaration for each character of ``body`` that the fonts lack: its number in a box, so none is lost."""
    unknown = sorted({char for char in body if ord(char) > 0x7F and not _has(char)})
    return "\n".join(
        rf"\DeclareUnicodeCharacter{{{ord(char):04X}}}{{\missing{{{ord(char):04X}}}}}" for char in unknown
    )


def _has(char: str) -> bool:
    return ord(char) in ACCENTED and unicodedata.category(char).startswith("L") and char not in "ĿŀŉĸſŦŧĦħ"
