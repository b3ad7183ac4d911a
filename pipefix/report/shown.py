"""The base class of results, and a run as one: printed they are text, in a notebook their page; `html` and `save` write files."""

from __future__ import annotations

import dataclasses
import html
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pipefix.report import descriptions, probe_report, program_report
from pipefix.report.document import Document, Field, Paragraph, Section
from pipefix.report.runfile import Run
from pipefix.vocabulary import versioned
from pipefix.vocabulary.printable import printable

S = TypeVar("S")
NOTEBOOK_HEIGHT = 640


def shown_as(kind: type[S], result: Any) -> S:
    """A result of another room as ``kind``, which is derived from its class and from `Shown`."""
    names = getattr(result, "__struct_fields__", None) or [field.name for field in dataclasses.fields(result)]
    return kind(**{name: getattr(result, name) for name in names})


class Shown:
    """A result that says of itself what is told of it."""

    __slots__ = ()
    KIND: ClassVar[str] = "file of results"
    """What `save` writes, in messages."""

    def document(self, *, full: bool = False) -> Document:
        """What is printed; ``full``: what the page holds."""
        raise NotImplementedError

    def printed(self, *, full: bool = False) -> list[Document]:
        """What a terminal is told, one below the other."""
        return [self.document(full=full)]

    def figures(self) -> Any:
        """What `save` writes as JSON, and ``--json`` prints."""
        return self

    def __str__(self) -> str:
        from pipefix.report import terminal

        return "\n".join(line for document in self.printed() for line in terminal.lines(document))

    def __repr__(self) -> str:
        """Its first sentence, for a prompt; printed, it tells all."""
        document = self.document()
        parts: list[Field | Section] = [*document.card, *document.sections]
        said = next((block.text for part in parts for block in part.blocks if isinstance(block, Paragraph)), "")
        return printable(f"<{document.command or 'pipefix'} {document.target}: {said}>")

    def _repr_html_(self) -> str:
        framed = html.escape(self.html(), quote=True)
        style = f"width: 100%; height: {NOTEBOOK_HEIGHT}px; border: 0"
        return f'<iframe title="pipefix report" srcdoc="{framed}" sandbox="allow-scripts allow-downloads" style="{style}"></iframe>'

    def html(self, path: str | Path | None = None) -> str:
        """The page that ``--html`` writes, as text; written to ``path`` where one is given."""
        from pipefix.report.page import page

        text = page(self.document(full=True))
        if path is not None:
            versioned.write(text, Path(path), what="report")
        return text

    def save(self, path: str | Path) -> Path:
        """Write the figures as JSON. Those of a run are read again by `pipefix.load` and `pipefix.compare`."""
        versioned.write(versioned.text(self.figures()), Path(path), what=self.KIND)
        return Path(path)


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
