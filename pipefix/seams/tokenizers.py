"""Hugging Face tokenizers, one text or many: text to token ids is decoding."""

from __future__ import annotations

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "tokenizers"


def install(tap: Tap, patches: Patches) -> None:
    import tokenizers

    for name in ("encode", "encode_batch", "encode_batch_fast"):
        cut(tap, patches, tokenizers.Tokenizer, name, Stage.DECODE, f"tokenizers.Tokenizer.{name}")
