"""Hands a run to the user: to files first, so that nothing is lost with a closed terminal, then to stdout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipefix.cli import console

if TYPE_CHECKING:
    from pipefix.report.runfile import Run


def deliver(run: Run, *, as_json: bool = False, full: bool = False, out: Path | None = None, html: Path | None = None) -> None:
    try:
        _write(run, out, html)
    finally:
        # A disk that filled up meanwhile costs the file, not the figures.
        _print(run, as_json, full)


def _write(run: Run, out: Path | None, html: Path | None) -> None:
    from pipefix.report import runfile
    from pipefix.vocabulary import versioned

    if out is not None:
        runfile.write(run, out)
        console.note(f"run file: {out}")
    if html is not None:
        from pipefix.report.html import page

        versioned.write(page(run), html, what="report")
        console.note(f"report: {html}")


def _print(run: Run, as_json: bool, full: bool) -> None:
    if as_json:
        console.document(run)
        return
    from pipefix.report import program_text, text

    if run.program is None or run.stages:
        console.report(text.lines if full else text.short, run)
    if run.program is not None:
        console.report(program_text.lines, run)
