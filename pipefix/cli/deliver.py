"""Writes a run to the files that were asked for, then prints it."""

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
        from pipefix.report import page, probe_report

        versioned.write(page.page(probe_report.full(run)), html, what="report")
        console.note(f"report: {html}")


def _print(run: Run, as_json: bool, full: bool) -> None:
    if as_json:
        console.document(run)
        return
    from pipefix.report import probe_report, program_report, terminal

    if run.program is None or run.stages:
        console.report(terminal.lines, (probe_report.full if full else probe_report.short)(run))
    if run.program is not None:
        console.report(terminal.lines, program_report.report(run))
