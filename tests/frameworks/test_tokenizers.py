"""Tokenizers of transformers: text to ids is decoding."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.frameworks.conftest import package

WORDS = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3}


@pytest.fixture
def tokenizer() -> Any:
    made = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    return made


def test_transformers(hooks: Any, tokenizer: Any) -> None:
    transformers = package("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[UNK]")
    hooks.contract(
        lambda: {key: list(value) for key, value in fast(["the cat sat", "down"], padding=True).items()},
        "tokenizers",
        "transformers",
        ops={"tokenizer()": "decode"},
    )
    hooks.contract(lambda: fast.encode("the cat"), "tokenizers", "transformers", ops={"tokenizer.encode": "decode"})
