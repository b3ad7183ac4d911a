"""Makes text from outside safe to print: names and messages may hold control characters that a terminal would obey."""

from __future__ import annotations

import json
import unicodedata

JOINER = "\u200d"
"""Joins emoji; Python does not count it as printable, and it moves nothing."""


LONGEST_TRACEBACK = 20_000
"""Characters of a traceback that are told: it holds all of a message."""


def shortened(text: str, most: int = LONGEST_TRACEBACK) -> str:
    """A text without its middle, where it is longer."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n[{len(text) - most // 2 * 2:,} characters]\n{text[-(most // 2) :]}"


def printable(text: str) -> str:
    """One line: control characters and direction overrides as escapes; line ends and odd blanks as blanks."""
    return text if text.isprintable() else "".join(map(_printable, text))


def printable_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """JSON whose strings hold the same characters, those that are not printable written as JSON's own escapes."""
    if text.isprintable():
        return text
    kept = ("\n", JOINER)
    return "".join(each if each.isprintable() or each in kept else json.dumps(each)[1:-1] for each in text)


def _printable(character: str) -> str:
    if character.isprintable() or character == JOINER:
        return character
    if character in "\t\n\r" or unicodedata.category(character) == "Zs":
        return " "
    return ascii(character)[1:-1]
