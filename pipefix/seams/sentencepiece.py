"""SentencePiece: text to token ids is decoding. Every method has two names."""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "sentencepiece"

_METHODS = ("Encode", "EncodeAsPieces", "EncodeAsIds", "EncodeAsNumpy", "SampleEncodeAsPieces", "SampleEncodeAsIds", "NBestEncode",
            "NBestEncodeAsPieces", "NBestEncodeAsIds", "ParallelEncode", "encode", "encode_as_pieces", "encode_as_ids",
            "encode_as_numpy", "sample_encode_as_pieces", "sample_encode_as_ids", "nbest_encode", "nbest_encode_as_pieces",
            "nbest_encode_as_ids", "parallel_encode", "tokenize", "Tokenize")  # fmt: skip


def install(tap: Tap, patches: Patches) -> None:
    cut_each(tap, patches, sys.modules[LIBRARY].SentencePieceProcessor, _METHODS, Stage.DECODE, "sentencepiece")
