"""Tokenizers and image processors of transformers. What they call inside belongs to them."""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "transformers.tokenization_utils_base"

_TOKENIZER = ("__call__", "encode", "encode_plus", "batch_encode_plus", "tokenize", "convert_tokens_to_ids")


def install(tap: Tap, patches: Patches) -> None:
    base = sys.modules[LIBRARY].PreTrainedTokenizerBase
    for name in _TOKENIZER:
        if name in vars(base):
            label = "tokenizer()" if name == "__call__" else f"tokenizer.{name}"
            cut(tap, patches, base, name, Stage.DECODE, label)
    images = sys.modules.get("transformers.image_processing_base")
    if images is not None:
        for name in ("__call__", "preprocess"):
            if name in vars(images.ImageProcessingMixin):
                cut(tap, patches, images.ImageProcessingMixin, name, Stage.AUGMENT, f"image_processor.{name}")
