"""Prints a document on the terminal with rich; no line is wider than asked but a command, which stays one line to be copied."""

from __future__ import annotations

import io
import re

from pipefix.report.document import Bar, Bars, Block, CommandLine, Document, Field, Fields, Items, Paragraph, Points, Section, Table
from pipefix.vocabulary.printable import printable
from pipefix.vocabulary.random_state import preserved

with preserved():  # rich draws from Python's generator when it is imported
    from rich.bar import Bar as Drawn
    from rich.cells import cell_len
    from rich.console import Console, RenderableType
    from rich.table import Table as Grid
    from rich.text import Text

NARROWEST = 40
"""Below this many columns nothing can be laid out; narrower terminals get this width."""
LABELS = 9
"""Columns of a card's labels."""
BAR = 24
_STYLES = {
    "strong": "bold", "soft": "dim", "good": "green", "bad": "red", "warn": "yellow", "note": "blue", "to-do": "cyan",
    "problem": "bold red", "warning": "bold yellow", "": "",
}  # fmt: skip
_ASCII = str.maketrans(
    {
        "µ": "u", "·": "-", "–": "-", "—": "-", "…": "~", "×": "x", "→": "->", "─": "-", "•": "*", "≥": ">=", "≤": "<=",
        "\u00a0": " ", "’": "'", "“": '"', "”": '"',
    }
)  # fmt: skip
_BLOCKS = str.maketrans("█▏▎▍▌▋▊▉─…", "#..::::#-~")
_HELD = "\ue000"
"""Stands for the blank between a figure and its unit while lines are broken."""
_UNITS = re.compile(r"(?<=\d) (?=(?:ns|µs|us|ms|s|min|h|B|kB|MB|GB|TB|%|samples/s)(?:$|[\s.,;:)]))")


def lines(document: Document, *, width: int = 100, color: bool = False, unicode: bool = True) -> list[str]:
    """The report for a terminal of this width; ``unicode``: off for streams that are not UTF-8."""
    return _Printer(max(width, NARROWEST), color, unicode).printed(document)


class _Printer:
    def __init__(self, width: int, color: bool, unicode: bool) -> None:
        self.width, self.unicode = width, unicode
        self.console = Console(
            file=io.StringIO(), width=width, force_terminal=color, color_system="standard" if color else None, no_color=not color,
            highlight=False, markup=False, emoji=False, legacy_windows=False, _environ={},
        )  # fmt: skip

    def printed(self, document: Document) -> list[str]:
        self._head(document)
        body = [section for section in document.sections if section.only != "page"]
        framed = bool(document.command and (body or document.card_last))  # a few sentences without need no frame
        if document.card_last:
            self._sections(body, bare=False)
            self._print("")
        if document.card:
            if framed:
                self._rule()
            self._fields(document.card, LABELS)
            if framed:
                self._rule()
        if not document.card_last:
            self._sections(body, bare=not document.command and not document.card)
        for paragraph in document.after:
            self._print(self._text(paragraph.text, paragraph.style))
        text = self.console.file.getvalue().replace(_HELD, " ")  # type: ignore[attr-defined]
        if not self.unicode:
            text = text.translate(_BLOCKS)
        return [line.rstrip() for line in text.split("\n")][:-1]

    def _head(self, document: Document) -> None:
        if document.command:
            name = f"{document.command} {document.target}".strip()
            room = self.width - cell_len(self._safe(name)) - cell_len(self._safe(document.created))
            if document.created and room >= 2:
                self._print(Text.assemble((self._safe(name), "bold"), " " * room, (self._safe(document.created), "dim")))
            else:
                self._print(self._text(name, "strong"))
                self._print(self._text(document.created, "soft")) if document.created else None
        for line in document.about:
            self._print(self._text(line, "soft"))
        if document.warning:
            self._print(self._text(document.warning, "warn"))

    def _sections(self, sections: list[Section], *, bare: bool) -> None:
        for number, section in enumerate(sections):
            if number or not bare:
                self._print("")
            if section.title:
                self._print(self._text(section.title, "strong"))
            for block in section.blocks:
                self._block(block, 2 if section.title else 0)

    def _block(self, block: Block, indent: int) -> None:
        if isinstance(block, Paragraph):
            self._hang("", block.text, indent, block.style)
        elif isinstance(block, CommandLine):
            self._command(block.text, indent)
        elif isinstance(block, Points):
            for text in block.texts:
                self._hang(" " * indent + "- ", text, indent + 2)
        elif isinstance(block, Fields):
            widest = max(cell_len(self._safe(row.label)) for row in block.rows)
            self._fields(block.rows, min(indent + widest + 2, self.width // 2), indent)
        elif isinstance(block, Items):
            self._items(block, indent)
        elif isinstance(block, Table):
            self._table(block, [Bar(cells=row) for row in block.rows], indent)
        elif isinstance(block, Bars):
            self._bars(block, indent)

    # -- lists ---------------------------------------------------------------------------------------------------------

    def _fields(self, rows: list[Field], labels: int, indent: int = 0) -> None:
        for row in rows:
            label = " " * indent + row.label
            for block in row.blocks:
                if isinstance(block, CommandLine):
                    self._command(block.text, labels, label)
                elif isinstance(block, Points):
                    for text in block.texts:
                        self._hang(f"{label:<{labels}}- ", text, labels + 2)
                        label = ""
                else:
                    self._hang(label, block.text, labels, block.style)
                label = ""

    def _items(self, items: Items, indent: int) -> None:
        for number, item in enumerate(items.items, 1):
            first = " " * indent + (f"{number:>2}. " if items.numbered else "")
            text = f"{item.tag}: {item.text}" if item.tag else item.text
            style = item.style or (f"strong {item.tag}" if item.tag else "")
            figure = self._text(item.figure, "strong good")
            room = self.width - len(first) - cell_len(self._safe(text)) - figure.cell_len
            if item.figure and room >= 2:
                self._print(Text.assemble(first, self._text(text, style), " " * room, figure))
            else:
                self._hang(first, text, len(first), style)
                if item.figure:
                    self._hang("", item.figure, len(first) + 2, "strong good")
            for block in item.blocks:
                self._block(block, len(first) + (0 if items.numbered else 2))

    def _hang(self, first: str, text: str, indent: int, style: str = "") -> None:
        """Text broken at blanks, its lines below one another; ``first`` stands before the first."""
        label = self._text(first, "strong" if first.strip(" -0123456789.") else "")
        if label.cell_len > indent:
            self._print(label)
            label = Text("")
        grid = Grid.grid()
        grid.add_column(width=indent, no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(label, self._text(text, style))
        self._print(grid if indent else self._text(text, style))

    def _command(self, command: str, indent: int, label: str = "") -> None:
        for line in command.split("\n"):
            text = Text.assemble((f"{self._safe(label):<{indent}}", "bold" if label else ""), (self._safe(line.rstrip()), "cyan"))
            self.console.print(text, soft_wrap=True)
            label = ""

    # -- tables --------------------------------------------------------------------------------------------------------

    def _bars(self, block: Bars, indent: int) -> None:
        rows = [bar for bar in block.bars[: block.first] if not bar.note]
        if rows:
            self._table(block.table, rows, indent, block.span if block.inline else None)
        for bar in block.bars:
            if bar.note:
                self._hang("", f"{bar.cells[0]}: {bar.note}", indent, "soft")
        if block.first is not None and len(block.bars) > block.first:
            self._hang("", f"and {len(block.bars) - block.first} more", indent, "soft")

    def _table(self, table: Table, rows: list[Bar], indent: int, span: tuple[float, float] | None = None) -> None:
        """``span``: the bars are drawn between these two figures."""
        align = table.align or "l" * len(table.columns)
        columns = self._that_fit(table, [bar.cells for bar in rows], indent, span is not None)
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(table.columns), header_style="dim")
        grid.add_column(width=max(indent - 2, 0) or None) if indent else None
        for place, column in enumerate(columns):
            grid.add_column(self._text(table.columns[column]), justify="right" if align[column] == "r" else "left", overflow="fold")
            if place == 0 and span is not None:
                grid.add_column("", min_width=6, max_width=BAR)
        for bar in rows:
            row: list[RenderableType] = [self._text(bar.cells[column], "strong bad" if bar.marked else "") for column in columns]
            if span is not None:
                whole, value = span[1] - span[0] or 1.0, bar.value.value if bar.value is not None else span[0]
                row.insert(1, Drawn(whole, 0, max(0.0, min(value - span[0], whole)), color="red" if bar.marked else "default"))
            grid.add_row(*([""] if indent else []), *row)
        self._print(grid)

    def _that_fit(self, table: Table, rows: list[list[str]], indent: int, drawn: bool) -> list[int]:
        """The columns that hold something and, but for the optional ones, are shown in any case."""
        cells = [[title, *(row[column] for row in rows)] for column, title in enumerate(table.columns)]
        columns = [column for column, held in enumerate(cells) if not column or not {"", "-"}.issuperset(held[1:])]
        wide = {column: max(cell_len(self._safe(cell)) for cell in cells[column]) for column in columns}
        for title in table.optional:
            if indent + sum(wide[column] + 2 for column in columns) + (8 if drawn else -2) <= self.width:
                break
            columns = [column for column in columns if table.columns[column] != title]
        return columns

    # -- text ----------------------------------------------------------------------------------------------------------

    def _safe(self, text: str) -> str:
        """Text from outside for this terminal, figures held to their units."""
        text = printable(text)
        return text if self.unicode else text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")

    def _text(self, text: str, style: str = "") -> Text:
        inks = " ".join(_STYLES.get(word, "") for word in style.split())
        return Text(_UNITS.sub(_HELD, self._safe(text)), inks, overflow="fold")

    def _rule(self) -> None:
        self._print(Text("─" * self.width, "dim"))

    def _print(self, renderable: RenderableType) -> None:
        self.console.print(renderable)
