"""Runs a verb with progress on stderr; then writes the files that were asked for, and prints its result as text or JSON."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipefix.cli import console
from pipefix.cli.progress import Progress
from pipefix.vocabulary.errors import UnreadableFile

if TYPE_CHECKING:
    from pipefix.report.shown import Shown


def delivered(verb: Callable[[Progress], Any], typed: Namespace, *, out: Path | None = None) -> Any:
    """What a verb returns, after it was delivered; where only a file of the verb's own could not be written, it is all the same.

    Meanwhile what the user's code prints goes to stderr too. Loading PyTorch, which takes seconds, is told.
    """
    here = os.getcwd()
    how: dict[str, Any] = {name: value for name, value in vars(typed).items() if name in ("json", "full", "html")}
    try:
        with console.stdout_reserved(), Progress(quiet=typed.quiet) as progress:
            progress("loading PyTorch", 0.0)
            try:
                result = verb(progress)
            finally:
                os.chdir(here)  # the target's code may have gone elsewhere, and files are named from here
    except UnreadableFile as error:
        if error.known is not None:
            deliver(error.known, out=out, **how)  # type: ignore[arg-type]
        raise
    deliver(result, out=out, **how)
    return result


def deliver(result: Shown, *, json: bool, full: bool = False, out: Path | None = None, html: Path | None = None) -> None:
    """Write a result to the files that are named, and print it."""
    try:
        write(result, out=out, html=html)
    finally:
        # A disk that filled up meanwhile costs the file, not the figures.
        if json:
            console.as_json(result.figures())
        else:
            for document in result.printed(full=full):
                console.show(document)


def write(result: Shown, *, out: Path | None = None, html: Path | None = None) -> None:
    """To ``out`` as JSON, to ``html`` as a page."""
    if out is not None:
        result.save(out)
        console.note(f"{result.KIND}: {out}")
    if html is not None:
        result.html(html)
        console.note(f"report: {html}")
