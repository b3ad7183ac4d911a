"""Hands a run to the user: to files first, so that nothing is lost, then to stdout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipefix.cli import console
from pipefix.vocabulary.errors import UnreadableFile

if TYPE_CHECKING:
    from pipefix.report.runfile import Run


def deliver(run: Run, *, as_json: bool = False, out: Path | None = None, html: Path | None = None) -> None:
    from pipefix.report import runfile

    if out is not None:
        runfile.write(run, out)
        console.note(f"run file: {out}")
    if html is not None:
        from pipefix.report.html import page

        write_text(html, page(run))
        console.note(f"report: {html}")
    if as_json:
        console.results([runfile.encode(run).decode("utf-8").rstrip("\n")])
    else:
        from pipefix.report.text import lines

        console.results(lines(run, width=console.width(), color=console.color(), ascii=not console.unicode()))


def write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnreadableFile(
            f"{path} could not be written: {error.strerror or error}.", advice="Choose a place with room that you may write to."
        ) from error
