"""What a user calls says what it takes and what it gives, and the types of what it gives can be named."""

from __future__ import annotations

import inspect
import re
import typing

import pipefix

FUNCTIONS = [name for name in pipefix.__all__ if inspect.isfunction(getattr(pipefix, name))]
WORDS = {"to", "store", "on_bad"}
"""Options that take one of a few words."""


def test_every_argument_and_the_answer_are_told() -> None:
    for name, signature in signatures().items():
        said = inspect.getdoc(getattr(pipefix, name)) or ""
        told = re.findall(r"^ {4}(\w+): \S", said.partition("\nArgs:\n")[2].partition("\nReturns:\n")[0], re.M)
        assert told == list(signature.parameters), name
        assert "\nReturns:\n" in said, name


def test_options_of_a_few_words_are_literal() -> None:
    for name, signature in signatures().items():
        for parameter in signature.parameters.values():
            if parameter.name in WORDS:
                assert str(parameter.annotation).startswith("Literal["), f"{name}: {parameter}"


def test_every_answer_has_a_name_for_users() -> None:
    for name, signature in signatures().items():
        named = re.findall(r"[A-Z]\w+", str(signature.return_annotation))
        assert {word for word in named if not hasattr(typing, word)} <= set(pipefix.__all__), name


def signatures() -> dict[str, inspect.Signature]:
    return {name: inspect.signature(getattr(pipefix, name)) for name in FUNCTIONS}
