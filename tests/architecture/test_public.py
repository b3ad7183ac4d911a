"""What a user calls says what it takes and what it gives, and the types of what it gives can be named."""

from __future__ import annotations

import inspect
import re
import typing

import pytest

import pipefix

FUNCTIONS = [name for name in pipefix.__all__ if inspect.isfunction(getattr(pipefix, name))]
WORDS = {"to", "store", "on_bad"}
"""Options that take one of a few words."""


@pytest.mark.parametrize("name", FUNCTIONS)
class TestFunctions:
    def test_every_argument_and_the_answer_are_told(self, name: str) -> None:
        function = getattr(pipefix, name)
        said = inspect.getdoc(function) or ""
        told = re.findall(r"^ {4}(\w+): \S", said.partition("\nArgs:\n")[2].partition("\nReturns:\n")[0], re.M)
        assert told == list(inspect.signature(function).parameters)
        assert "\nReturns:\n" in said

    def test_options_of_a_few_words_are_literal(self, name: str) -> None:
        for parameter in inspect.signature(getattr(pipefix, name)).parameters.values():
            if parameter.name in WORDS:
                assert str(parameter.annotation).startswith("Literal["), parameter

    def test_its_answer_has_a_name_for_users(self, name: str) -> None:
        function = getattr(pipefix, name)
        named = re.findall(r"[A-Z]\w+", str(inspect.signature(function).return_annotation))
        ours = {word for word in named if not hasattr(typing, word)}
        assert ours <= set(pipefix.__all__)
