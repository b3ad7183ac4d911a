"""A recording stays within its bytes, says what it cannot keep, and nothing done to what it gives out can harm it."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipefix.hooks.recording import Recording
from pipefix.hooks.result_store import MISSING
from pipefix.vocabulary.stage import Stage

ROOMY = 1 << 30


def kept(value: Any) -> Recording:
    recording = Recording(ROOMY)
    recording.keep(7, "load", 0, Stage.DECODE, value)
    return recording


def letters() -> Any:
    return (letter for letter in "abc")


def test_a_value_is_found_by_sample_operation_and_turn() -> None:
    recording = kept(None)
    recording.keep(7, "load", 1, Stage.DECODE, "second")
    recording.keep(8, "load", 0, Stage.DECODE, "other")
    assert [recording.find(*key) for key in ((7, "load", 0), (7, "load", 1), (8, "load", 0))] == [None, "second", "other"]
    assert all(recording.find(*key) is MISSING for key in ((6, "load", 0), (7, "save", 0), (8, "load", 1)))


def test_harming_what_was_given_or_found_leaves_the_recording_as_it_was() -> None:
    """The user's code may write into what it is given: an augmentation in place, a popped key."""
    value = {"boxes": [1, 2], "pixels": np.zeros(3)}
    recording = kept(value)
    sample, batch = torch.zeros(3), [torch.zeros(3)]
    recording.complete(7, sample)
    recording.keep_batch(batch)
    for harmed in (recording.find(7, "load", 0), value):
        harmed["pixels"].fill(9)
        harmed.pop("boxes")
    sample.fill_(9)
    batch[0].fill_(9)
    again = recording.find(7, "load", 0)
    assert again["boxes"] == [1, 2] and again["pixels"].sum() == 0
    assert recording.samples[7].sum() == recording.batches[0][0].sum() == 0


class TestRefusal:
    def test_what_was_refused_once_is_not_tried_again_and_the_rest_is_kept(self, tmp_path: Path) -> None:
        """Half of an operation's results would make an arm that is half real."""
        path = tmp_path / "data"
        path.write_bytes(b"x")
        with path.open("rb") as file:
            recording = kept(file)
        assert recording.refused == {"load": "a BufferedReader is a handle, not a value: it can only be made again"}
        recording.keep(8, "load", 0, Stage.DECODE, "a plain value")
        recording.keep(7, "crop", 0, Stage.AUGMENT, 1)
        assert recording.find(7, "load", 0) is recording.find(8, "load", 0) is MISSING
        assert recording.find(7, "crop", 0) == 1

    def test_what_refers_to_itself_is_refused(self) -> None:
        """A copy of it could be made; how much it holds could not be told."""
        node = SimpleNamespace()
        node.parent = node
        assert "that contains itself, or is nested too deep" in kept(node).refused["load"]

    def test_a_picture_that_is_still_to_be_decoded_and_cannot_be_is_refused(self) -> None:
        """The user's code meets that where it asks for the pixels, and may be prepared for it."""
        whole = io.BytesIO()
        Image.effect_noise((64, 64), 9).save(whole, "JPEG")
        torn = Image.open(io.BytesIO(whole.getvalue()[:900]))
        assert "a JpegImageFile cannot be copied: image file is truncated" in kept(torn).refused["load"]

    def test_samples_and_batches_are_refused_under_their_own_names(self) -> None:
        recording = Recording(ROOMY)
        recording.complete(7, letters())
        recording.keep_batch(letters())
        assert recording.refused.keys() == {"sample", "batch"} and recording.units == [7]
        assert not recording.samples and not recording.batches


class TestBudget:
    @given(st.integers(50_000, 400_000), st.lists(st.integers(1, 20_000), min_size=1, max_size=30))
    def test_it_is_kept_within_one_samples_overshoot(self, budget: int, sizes: list[int]) -> None:
        recording = Recording(budget)
        for unit, size in enumerate(sizes):
            if recording.full:
                break
            recording.keep(unit, "load", 0, Stage.DECODE, np.zeros(size, np.uint8))
            recording.complete(unit, torch.zeros(size, dtype=torch.uint8))
        assert recording.nbytes <= budget + 2 * max(sizes) + 1_000
        assert recording.full == (recording.nbytes >= budget)

    def test_every_kept_value_counts(self) -> None:
        recording = kept(np.zeros(1_000, np.uint8))
        recording.complete(7, np.zeros(500, np.uint8))
        recording.keep_batch(np.zeros(250, np.uint8))
        assert 1_750 <= recording.nbytes <= 2_200

    def test_what_holds_far_more_than_the_budget_is_not_copied(self) -> None:
        """A file that torch.load maps, or all that a dataset has in memory, was copied whole before it was seen to be too large."""
        recording = Recording(1_000)
        recording.keep(7, "load", 0, Stage.DECODE, torch.zeros(1).expand(1 << 50))  # no machine has room for a copy
        recording.keep(7, "crop", 0, Stage.AUGMENT, 1)
        recording.complete(7, "sample")
        assert "too much for --recording-budget (in Python recording_bytes)" in recording.refused["load"]
        assert recording.units == [7] and not recording.full

    @pytest.mark.parametrize("kind", ["file", "value"])
    def test_a_unit_that_reads_far_more_than_the_budget_is_not_held(self, kind: str) -> None:
        """Such as the first sample of a stream that reads a whole shard."""
        recording = Recording(1_000)
        for offset in range(0, 100_000, 1_000):
            if kind == "file":
                recording.files.put("/data/shard.tar", offset, bytes(1_000), 100_000)
            else:
                recording.keep(0, "load", offset, Stage.DECODE, bytes(1_000))
        recording.complete(0, "sample")
        assert recording.nbytes <= 4_000 and recording.full
        assert recording.units == [], "it could be replayed in part only"


def test_a_units_largest_decoded_value_counts() -> None:
    """A picture is loaded and then converted: it is one picture. Several loaded in one sample add up."""
    recording = Recording(1_000_000)
    assert recording.decoded_bytes == 0.0
    for unit in (0, 1):
        recording.keep(unit, "load", 0, Stage.DECODE, np.zeros(600, np.uint8))
        recording.keep(unit, "load", 1, Stage.DECODE, np.zeros(400, np.uint8))
        recording.keep(unit, "convert", 0, Stage.DECODE, np.zeros(500, np.uint8))
        recording.keep(unit, "crop", 0, Stage.AUGMENT, np.zeros(9_000, np.uint8))
    assert 1_000 <= recording.decoded_bytes <= 1_400
