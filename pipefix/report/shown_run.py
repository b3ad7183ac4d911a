"""`Run` for Python users: a run file's figures, which print their card, and draw their page in a notebook."""

from __future__ import annotations

from typing import ClassVar

from pipefix.report import descriptions, probe_report, program_report
from pipefix.report.document import Document
from pipefix.report.runfile import Run
from pipefix.report.shown import Shown, shown_as


class ShownRun(Shown, Run, frozen=True, kw_only=True):
    """What `pipefix.probe` and `pipefix.load` return: every figure of a run file by its name, and ways to look at it."""

    KIND: ClassVar[str] = "run file"

    def document(self, *, full: bool = False) -> Document:
        return probe_report.full(self) if full else probe_report.short(self)

    def printed(self, *, full: bool = False) -> list[Document]:
        """The probe, and the program that it was made in; where nothing was probed, the program alone."""
        probed = [self.document(full=full)] if self.program is None or self.stages else []
        return [*probed, *([program_report.report(self)] if self.program is not None else [])]

    def __repr__(self) -> str:
        return f"<pipefix run of {self.target or 'a pipeline'}: {descriptions.verdict_line(self)}>"


def shown(run: Run) -> ShownRun:
    return run if isinstance(run, ShownRun) else shown_as(ShownRun, run)
