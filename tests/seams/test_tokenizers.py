"""Tokenizers: text to ids is decoding."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

WORDS = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3}


@pytest.fixture
def tokenizer():
    made = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    return made


def test_encode(seams, tokenizer):
    seams.contract(lambda: tokenizer.encode("the cat sat down").ids, "tokenizers", ops={"tokenizers.Tokenizer.encode": "decode"})


def test_encode_batch(seams, tokenizer):
    seams.contract(
        lambda: [one.tokens for one in tokenizer.encode_batch(["the cat", "sat"])],
        "tokenizers",
        ops={"tokenizers.Tokenizer.encode_batch": "decode"},
    )
