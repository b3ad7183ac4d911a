"""Each picture is decoded as if it were the first: nothing of an earlier one is left in a kernel."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.kernel import Kernel
from pipefix.kernels.picture import Box
from tests.kernels.jpegs import DHT, DQT, first_scans, without

WIDTH, HEIGHT = 90, 70
Corpus = dict[str, bytes]


@pytest.fixture(scope="module")
def corpus(encoded: Callable[..., bytes]) -> Corpus:
    plain, fine = encoded(), encoded(seed=3, quality=97)
    optimised, progressive = encoded(seed=1, optimize=True), encoded(seed=2, progressive=True)
    return {
        "plain": plain,
        "finer": fine,
        "grey": encoded(mode="L", seed=4),
        "optimised": optimised,
        "progressive": progressive,
        "a frame of Motion-JPEG": without(plain, DHT),
        "optimised, without Huffman tables": without(optimised, DHT),
        "progressive, without Huffman tables": without(progressive, DHT),
        "without quantisation tables": without(fine, DQT),
        "without any table": without(plain, DHT, DQT),
        "progressive, without its last scans": first_scans(progressive, 4),
        "cut off": plain[:1500],
        "its tables alone": plain[:300] + b"\xff\xd9",
        "damaged": plain[:1200] + bytes(80) + plain[1280:],
        "CMYK": encoded(mode="CMYK"),
    }


def outcome(kernel: Kernel, jpeg: bytes) -> bytes | str:
    """Pixels, or why there are none."""
    try:
        return kernel.jpeg_region(jpeg, Box(0, 0, WIDTH, HEIGHT)).tobytes()
    except BadPicture as error:
        return error.reason


def by_pillow(jpeg: bytes) -> bytes | None:
    try:
        return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")).tobytes()
    except OSError:
        return None


def test_what_is_decoded_is_what_pillow_decodes(kernel: Kernel, corpus: Corpus) -> None:
    """The other way round what a kernel refuses is left to the library of the list."""
    for name in sorted(corpus, reverse=True):
        made = outcome(kernel, corpus[name])
        assert isinstance(made, str) or made == by_pillow(corpus[name]), name


@pytest.mark.parametrize("before", ["optimised", "finer", "progressive", "grey", "cut off"])
def test_a_frame_of_motion_jpeg_has_the_standard_tables(kernel: Kernel, corpus: Corpus, before: str) -> None:
    outcome(kernel, corpus[before])
    assert outcome(kernel, corpus["a frame of Motion-JPEG"]) == by_pillow(corpus["plain"])


@pytest.mark.parametrize("before", ["optimised", "finer", "progressive", "grey", "cut off"])
@pytest.mark.parametrize("name", ["without quantisation tables", "without any table", "its tables alone", "cut off"])
def test_tables_of_another_picture_are_not_used(kernel: Kernel, corpus: Corpus, before: str, name: str) -> None:
    outcome(kernel, corpus[before])
    assert outcome(kernel, corpus[name]) in ("corrupt", "truncated", "not-jpeg")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_the_order_does_not_matter(
    kernel: Kernel, corpus: Corpus, expected: dict[str, dict[str, Any]], data: st.DataObject
) -> None:
    for name in data.draw(st.lists(st.sampled_from(sorted(corpus)), max_size=12)):
        assert outcome(kernel, corpus[name]) == expected[kernel.name].setdefault(name, outcome(kernel, corpus[name])), name


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, Any]]:
    """What each kernel first gave for a picture."""
    return {"native": {}, "twin": {}}


def test_threads_do_not_matter(kernel: Kernel, corpus: Corpus) -> None:
    names = sorted(corpus) * 8
    alone = {name: outcome(kernel, corpus[name]) for name in corpus}
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda name: outcome(kernel, corpus[name]), names))
    assert together == [alone[name] for name in names]
