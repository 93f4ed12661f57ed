"""``fleetctl report``: what benchmarks' records say, as a page, as LaTeX, and in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli import complete

LatexOption = Annotated[
    Path | None,
    typer.Option("--latex", help="A folder for report.tex, and report.pdf where a TeX is found."),
]


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Runs of `fleetctl bench list`: ids, parts of them, `last`, or files of records.",
            autocompletion=complete.runs,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="The page's file; report.html beside the records of one run, else here."
        ),
    ] = None,
    latex: LatexOption = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document with the numbers.")] = False,
) -> None:
    """Make a report of one or more runs of one model; several are compared, and averaged only where nothing differs."""
    from fleetctl.bench import report as reports
    from fleetctl.bench.records import find, load
    from fleetctl.bench.report import terminal
    from fleetctl.bench.summary import summarize
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import find_root

    output = Output(json=json)
    roots = (Path() if Path(word).exists() else find_root() for word in runs)
    files = list(dict.fromkeys(find(root, word).resolve() for root, word in zip(roots, runs, strict=True)))
    summary = summarize([load(file) for file in files])
    beside = files[0].parent / reports.PAGE if len(files) == 1 else Path(reports.PAGE)
    written = reports.write(summary, out or beside, latex)
    if json:
        output.document({**terminal.document(summary), "files": written.files(), "latex": written.why})
        return
    terminal.show(summary, output)
    output.line()
    for file in written.files():
        output.line(file)
    if written.why:
        output.progress.print(written.why, style="yellow", soft_wrap=True)
