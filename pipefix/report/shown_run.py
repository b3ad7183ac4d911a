"""A run as Python hands it to its user: printed it is its card, in a notebook its page."""

from __future__ import annotations

import html
from pathlib import Path

from pipefix.report import probe_report, runfile, terminal, wording
from pipefix.report.page import page
from pipefix.report.runfile import Run
from pipefix.vocabulary import versioned

NOTEBOOK_HEIGHT = 640


class ShownRun(Run, frozen=True, kw_only=True):
    """What `pipefix.probe` and `pipefix.load` return: every figure of a run file by its name, and ways to look at it."""

    def __str__(self) -> str:
        return "\n".join(terminal.lines(probe_report.short(self)))

    def __repr__(self) -> str:
        kind = self.verdict.kind if self.verdict is not None else "no verdict"
        stage = f" ({self.verdict.stage})" if self.verdict is not None and self.verdict.stage else ""
        rate = f", {wording.rate(self.throughput.delivered.value, self.throughput.unit)}" if self.throughput is not None else ""
        return f"<pipefix run of {self.target or 'a pipeline'}: {kind}{stage}{rate}>"

    def _repr_html_(self) -> str:
        framed = html.escape(self.html(), quote=True)
        style = f"width: 100%; height: {NOTEBOOK_HEIGHT}px; border: 0"
        return f'<iframe title="pipefix report" srcdoc="{framed}" sandbox="allow-scripts" style="{style}"></iframe>'

    def html(self, path: str | Path | None = None) -> str:
        """The page that ``--html`` writes, as text; written to ``path`` where one is given."""
        made = page(probe_report.full(self))
        if path is not None:
            versioned.write(made, Path(path), what="report")
        return made

    def save(self, path: str | Path) -> Path:
        """Write the run file, for `pipefix.load`, `pipefix.compare` and the commands of the same names."""
        runfile.write(self, Path(path))
        return Path(path)


def shown(run: Run) -> ShownRun:
    if isinstance(run, ShownRun):
        return run
    return ShownRun(**{name: getattr(run, name) for name in run.__struct_fields__})
