"""Laying text out in terminal cells: how wide it is, wrapped, clipped, barred. Knows nothing of runs.

Text from outside (file names, op names) never reaches the terminal raw: control characters and direction overrides
are shown as escapes.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from pipefix.vocabulary.terminal import JOINER, printable

_ASCII = str.maketrans(
    {
        "µ": "u", "·": "-", "–": "-", "—": "-", "…": "~", "×": "x", "→": "->", "─": "-", "│": "|", "█": "#", "▏": ".", "▎": ".",
        "▍": ":", "▌": ":", "▋": ":", "▊": "#", "▉": "#", "░": ".", "•": "*", "≥": ">=", "≤": "<=", "\u00a0": " ", "’": "'",
        "“": '"', "”": '"',
    }
)  # fmt: skip
_PARTS = " ▏▎▍▌▋▊▉"
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}
_UNITS = frozenset(("ns", "µs", "us", "ms", "s", "min", "h", "B", "kB", "MB", "GB", "TB", "%", "samples/s"))


def cells(text: str) -> int:
    """Columns the text takes on a terminal: wide characters two, combining marks none."""
    if text.isascii():
        return len(text)
    total = 0
    for character in text:
        if character == JOINER or unicodedata.category(character) in ("Mn", "Me", "Cf"):
            continue
        total += 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
    return total


def plain(text: str) -> str:
    """The same in ASCII, for streams that take nothing else."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def clip(text: str, width: int) -> str:
    """Cut to ``width`` cells, the cut marked."""
    if cells(text) <= width:
        return text
    kept, room = [], width - 1
    for character in text:
        room -= cells(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…" if width > 0 else ""


def left(text: str, width: int) -> str:
    text = clip(text, width)
    return text + " " * (width - cells(text))


def right(text: str, width: int) -> str:
    text = clip(text, width)
    return " " * (width - cells(text)) + text


def _pieces(word: str, width: int) -> Iterable[str]:
    """A word too long for a line, cut where it must be."""
    piece = ""
    for character in word:
        if piece and cells(piece + character) > width:
            yield piece
            piece = ""
        piece += character
    yield piece


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken at blanks, within words only where one is longer than a line."""
    lines: list[str] = []
    line = ""
    for word in _with_units(text.split()):
        if line and cells(line) + 1 + cells(word) <= width:
            line += " " + word
            continue
        if line:
            lines.append(line)
        *full, line = _pieces(word, width)
        lines.extend(full)
    return [*lines, line] if line else lines


def _with_units(words: Iterable[str]) -> list[str]:
    """Words, a figure and its unit being one."""
    kept: list[str] = []
    for word in words:
        if kept and kept[-1][-1].isdigit() and " " not in kept[-1] and word.rstrip(".,;:)") in _UNITS:
            kept[-1] += f" {word}"
        else:
            kept.append(word)
    return kept


class _Atom(msgspec.Struct, frozen=True):
    """What a shell command must not be broken within: a character, or a backslash and what it escapes."""

    text: str
    quote: str
    """The quote that is open before it: "", ' or \"."""

    @property
    def blank(self) -> bool:
        return self.text == " " and not self.quote


def _atoms(command: str) -> Iterable[_Atom]:
    quote, escape = "", ""
    for character in command:
        if escape:
            yield _Atom(escape + character, quote)
            escape = ""
        elif character == "\\" and quote != "'":
            escape = character
        else:
            yield _Atom(character, quote)
            if character in "'\"" and quote in ("", character):
                quote = "" if quote else character
    if escape:
        yield _Atom(escape, quote)


def wrap_command(command: str, width: int) -> list[str]:
    """A command broken so that it can still be pasted: a backslash ends each line that goes on.

    Between words the next line may be indented. A word longer than a line is broken inside, also within quotes, so its rest must
    start in the first column: such a line is marked by a leading NUL, which the caller replaces by nothing instead of an indent.
    """
    words = ["".join(atom.text for atom in group) for _, group in itertools.groupby(_atoms(command), key=lambda atom: atom.blank)]
    room = width - 2
    lines: list[str] = []
    line = ""
    for word in words:
        shown = line.removeprefix("\0")
        if cells(shown) + cells(word.rstrip(" ")) <= room:
            line += word
            continue
        if line.strip(" \0"):
            lines.append(line.rstrip(" ") + " \\")
        *full, line = _broken(word, room)
        lines += full
    return [*lines, line.rstrip(" ")] if line.strip(" \0") else lines


def _broken(word: str, room: int) -> list[str]:
    """A word of a command in pieces that a shell puts together again."""
    pieces, piece = [], ""
    for atom in _atoms(word):
        if piece and cells(piece.removeprefix("\0") + atom.text) > room:
            single = atom.quote == "'"
            pieces.append(piece + ("'\\" if single else "\\"))
            piece = "\0'" if single else "\0"
        piece += atom.text
    return [*pieces, piece]


def bar(share: float, width: int, *, unicode: bool = True) -> str:
    """A bar of ``width`` cells, filled to ``share`` in eighths of a cell (whole cells in ASCII)."""
    share = min(max(share, 0.0), 1.0)
    if not unicode:
        return left("#" * round(share * width), width)
    eighths = round(share * width * 8)
    whole, part = divmod(eighths, 8)
    return left("█" * whole + (_PARTS[part] if part else ""), width)


NARROWEST = 40
"""Below this many columns nothing can be laid out; narrower terminals get this width."""


def for_terminal(draw: Callable[..., Iterable[str]]) -> Callable[..., list[str]]:
    """A report for the terminal of a function that draws it with a `Paint`, its last argument.

    The report takes the terminal's ``width``, ``color`` and ``unicode`` (off for streams that are not UTF-8) instead.
    """

    @functools.wraps(draw)
    def lines(*nouns: Any, width: int = 100, color: bool = False, unicode: bool = True, **options: Any) -> list[str]:
        drawn = draw(*nouns, **options, paint=Paint(max(width, NARROWEST), color, unicode))
        return list(drawn) if unicode else [plain(line) for line in drawn]

    return lines


class Paint(msgspec.Struct, frozen=True):
    """How the terminal takes it: coloured or not, Unicode or ASCII only, and how many columns."""

    width: int = 100
    color: bool = False
    unicode: bool = True

    def text(self, text: str) -> str:
        """Text from outside, made safe for this terminal."""
        text = printable(text)
        return text if self.unicode else plain(text)

    def ink(self, text: str, *styles: str) -> str:
        if not self.color or not styles or not text.strip():
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"

    def rule(self) -> str:
        return self.ink(("─" if self.unicode else "-") * self.width, "dim")

    def labelled(self, label: str, text: str, *styles: str, indent: int = 9) -> list[str]:
        """``LABEL    text`` with the text wrapped under itself."""
        rows = wrap(self.text(text), self.width - indent) or [""]
        heads = [left(label, indent)] + [" " * indent] * (len(rows) - 1)
        return [(self.ink(head, "bold") + self.ink(row, *styles)).rstrip() for head, row in zip(heads, rows, strict=True)]

    def paragraph(self, text: str, *styles: str, first: str = "") -> list[str]:
        """Text wrapped to the width: ``first`` before its first row, as many blanks before the others."""
        rows = wrap(self.text(text), self.width - len(first))
        return [(" " * len(first) if number else first) + self.ink(row, *styles) for number, row in enumerate(rows)]

    def item(self, text: str) -> list[str]:
        """One of the points below a label."""
        return self.paragraph(text, first=" " * 9 + "- ")

    def command(self, command: str, indent: int = 9) -> list[str]:
        rows = [row for part in command.split("\n") for row in wrap_command(self.text(part.rstrip()), self.width - indent)]
        return [self.ink(row[1:], "cyan") if row.startswith("\0") else " " * indent + self.ink(row, "cyan") for row in rows]

    def to_do(self, text: str, indent: int = 9) -> list[str]:
        """A command to paste, or what to do in words: those begin with a word that has a capital, and are broken like any text."""
        first = text.partition(" ")[0]
        if not (first.isalpha() and first[0].isupper()):
            return self.command(text, indent)
        return [" " * indent + self.ink(row, "cyan") for row in wrap(self.text(text), self.width - indent)]

    def table(self, rows: Sequence[Sequence[str]], align: str, *, indent: int = 2, gap: int = 2, stretch: int = 0) -> list[str]:
        """Rows in columns (``align``: l or r each); the column ``stretch`` gives way where the width is too small."""
        if not rows:
            return []
        rows = [[self.text(cell) for cell in row] for row in rows]
        widths = [max(cells(row[column]) for row in rows) for column in range(len(align))]
        spare = self.width - indent - gap * (len(widths) - 1) - sum(widths)
        if spare < 0:
            widths[stretch] = max(widths[stretch] + spare, 6)
        out = []
        for row in rows:
            parts = [(left if side == "l" else right)(cell, wide) for cell, side, wide in zip(row, align, widths, strict=True)]
            out.append(clip(" " * indent + (" " * gap).join(parts).rstrip(), self.width))
        return out
