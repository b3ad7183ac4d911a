"""What planted pipelines need around them: the source that waits, and threads as a worker has them."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import pytest
import torch

from tests.planted.server import Server


@pytest.fixture(scope="session")
def waiting_server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Libraries that spread over cores would blur what one stage costs."""
    torch_threads, cv2_threads = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    yield
    torch.set_num_threads(torch_threads)
    cv2.setNumThreads(cv2_threads)
