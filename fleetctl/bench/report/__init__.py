"""Reports of benchmarks: a page, a LaTeX document and the terminal, all from one summary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetctl.bench.summary import Summary
from fleetctl.errors import FleetError
from fleetctl.files import save

PAGE = "report.html"
SOURCE = "report.tex"


@dataclass(frozen=True)
class Written:
    """What was written. ``why``: why there is no PDF, where LaTeX was asked for; "" else."""

    page: Path
    source: Path | None = None
    pdf: Path | None = None
    why: str = ""

    def files(self) -> list[str]:
        """All files, as paths."""
        return [str(path) for path in (self.page, self.source, self.pdf) if path]


def write(summary: Summary, page: Path, latex: Path | None = None) -> Written:
    """Write the page, and into the folder ``latex`` the document's source and, where a TeX is found, its PDF.

    FleetError (exit 2) where a file cannot be written; a TeX that fails is told in ``why``, with the source complete.
    """
    from fleetctl.bench.report import html, tex

    _save(page, html.render(summary))
    if latex is None:
        return Written(page)
    try:
        latex.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(latex, error) from None
    source = latex / SOURCE
    _save(source, tex.render(summary))
    pdf, why = tex.compile_pdf(source)
    return Written(page, source, pdf, why)


def _save(path: Path, text: str) -> None:
    try:
        save(path, text)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> FleetError:
    return FleetError(
        f"the report cannot be written: {error.strerror}", str(path), "name another file or folder"
    )
