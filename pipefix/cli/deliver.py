"""Hands a run to the user: to files first, so that nothing is lost with a closed terminal, then to stdout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipefix.cli import console

if TYPE_CHECKING:
    from pipefix.report.runfile import Run


def deliver(run: Run, *, as_json: bool = False, out: Path | None = None, html: Path | None = None) -> None:
    try:
        _write(run, out, html)
    finally:
        # A disk that filled up meanwhile costs the file, not the figures.
        _print(run, as_json)


def _write(run: Run, out: Path | None, html: Path | None) -> None:
    from pipefix.report import runfile

    if out is not None:
        runfile.write(run, out)
        console.note(f"run file: {out}")
    if html is not None:
        from pipefix.report.html import page

        runfile.write_whole(page(run).encode("utf-8", "backslashreplace"), html, what="report")
        console.note(f"report: {html}")


def _print(run: Run, as_json: bool) -> None:
    if as_json:
        from pipefix.report import runfile

        console.results([runfile.encode(run).decode("utf-8").rstrip("\n")])
    else:
        from pipefix.report.text import lines

        console.results(lines(run, **console.manner()))
