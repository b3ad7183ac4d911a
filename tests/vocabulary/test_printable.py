"""Whatever text is printed, a terminal shows it and obeys nothing in it."""

from __future__ import annotations

import ast
import json

from hypothesis import given
from hypothesis import strategies as st

from pipefix.vocabulary.printable import JOINER, printable, printable_json, printable_lines
from tests.architecture import house

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_a_line_is_one_line_of_printable_characters(text: str) -> None:
    assert printable(text).replace(JOINER, "").isprintable()
    assert printable_lines(text).count("\n") == text.count("\n")


@given(st.dictionaries(TEXT, TEXT))
def test_json_says_the_same_as_before(value: dict[str, str]) -> None:
    shown = printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert shown.replace("\n", "").replace(JOINER, "").isprintable()
    assert json.loads(shown) == value


def test_what_is_readable_stays() -> None:
    assert printable("größe 写真 👩‍👧.jpg") == "größe 写真 👩‍👧.jpg"
    assert printable("a\tb\nc\u00a0d\x1b[31m") == "a b c d\\x1b[31m"


def test_only_the_console_prints() -> None:
    """It cleans what it prints; the two others have no command line's manners: a file that is run by itself."""
    printing = {
        name
        for name, module in house.modules().items()
        for node in module.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing <= {"pipefix.cli.console", "pipefix.kernels.build"}, printing
