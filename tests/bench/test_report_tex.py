"""The LaTeX document: a real TeX makes a PDF of it, whatever the answers hold; without one the source is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.bench.records import load
from fleetctl.bench.report import tex
from fleetctl.bench.report.texwords import declarations, escape
from fleetctl.bench.summary import summarize
from tests.bench import synthetic
from tests.bench.test_report_charts import SWEEP
from tests.bench.test_report_page import nasty


def test_a_tex_makes_a_pdf_of_a_run_with_all_that_can_go_wrong(tmp_path: Path) -> None:
    summary = summarize([load(synthetic.write(tmp_path, change=nasty, ended=False))])
    source = tmp_path / "report.tex"
    source.write_text(tex.render(summary), encoding="utf-8")
    pdf, why = tex.compile_pdf(source)
    assert pdf is not None, why
    assert pdf.read_bytes().startswith(b"%PDF-") and pdf.stat().st_size > 20_000
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["report.pdf", "report.tex"]


def test_a_tex_takes_any_character(tmp_path: Path) -> None:
    ranges = [
        range(0x20, 0x250),
        range(0x370, 0x400),
        range(0x2000, 0x2400),
        range(0x4E00, 0x4E20),
        [0x1F600, 0xFFFD, 7, 27],
    ]
    text = escape(" ".join(chr(code) for part in ranges for code in part) + " --long " + "a9" * 200)
    source = tmp_path / "any.tex"
    head = r"\documentclass{article}\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}\usepackage{textcomp}"
    box = r"\newcommand{\missing}[1]{\fbox{\tiny #1}}"
    source.write_text(
        f"{head}{box}\n{declarations(text)}\n\\begin{{document}}{text}\\end{{document}}", encoding="utf-8"
    )
    pdf, why = tex.compile_pdf(source)
    assert pdf is not None, why


def test_charts_hold_what_was_measured(tmp_path: Path) -> None:
    summary = summarize([load(synthetic.write(tmp_path, SWEEP))])
    source = tex.render(summary)
    assert source.count("\\begin{axis}") == source.count("\\end{axis}") == 5
    point = summary.points["ddtree · budget 64, topk 8"]
    assert point.accepted is not None
    assert f"(64,{point.accepted.mean:.5g})" in source
    assert "node[treetaken" in source or "treetaken" in source
    assert "%%CHARACTERS%%" not in source and "<<" not in source


def test_without_a_tex_it_is_said_and_a_broken_source_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "x.tex"
    source.write_text(r"\documentclass{article}\begin{document}\nosuchcommand\end{document}")
    pdf, why = tex.compile_pdf(source)
    assert pdf is None and "Undefined control sequence" in why and "nosuchcommand" in why
    monkeypatch.setenv("PATH", str(tmp_path))
    pdf, why = tex.compile_pdf(source)
    assert pdf is None and "pdflatex" in why and "x.tex is complete" in why


@given(st.text(st.characters(max_codepoint=0x7E), max_size=80))
def test_escaped_text_holds_no_character_of_latexs_own(text: str) -> None:
    escaped = escape(text)
    for command in ("\\textbackslash{}", "\\allowbreak{}", "-{}-"):
        escaped = escaped.replace(command, "")
    assert not set(escaped) & set("~^\n\t\x00\x1b")
    for special in "$&#%_":
        assert escaped.count(special) == escaped.count("\\" + special)
    assert escaped.isprintable()
