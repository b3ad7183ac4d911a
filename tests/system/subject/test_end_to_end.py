"""Probes whose workers are interpreters of their own."""

from __future__ import annotations

import pytest

from tests.subject import pipelines
from tests.subject.test_end_to_end import probe


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_start_methods(method: str) -> None:
    run = probe(pipelines.loader("map", 1, multiprocessing_context=method))
    assert run.settings.start_method == method
