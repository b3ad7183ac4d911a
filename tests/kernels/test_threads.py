"""Many threads: each writes its own sample, and the interpreter runs on during a call."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.kernel import Kernel
from pipefix.kernels.request import UINT8, Box, PictureCut, Target
from tests.kernels.conftest import Encode, normalised

CUT = PictureCut(Box(5, 5, 180, 140), (64, 64), Box(0, 0, 64, 64))
FINISH = normalised((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))


def test_threads_write_their_own_samples(kernel: Kernel, encoded: Encode) -> None:
    jpegs = [encoded(200, 150, seed=seed) for seed in range(8)]
    alone, together = (Target(torch.zeros((64, 3, 64, 64))) for _ in range(2))
    for index in range(64):
        kernel.jpeg_into(jpegs[index % 8], CUT, FINISH, alone, index)

    def make(index: int) -> None:
        if index % 5 == 0:
            try:
                kernel.jpeg_into(jpegs[0][:900], CUT, FINISH, together, index)
            except BadPicture:
                pass
        kernel.jpeg_into(jpegs[index % 8], CUT, FINISH, together, index)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(64)))
    assert torch.equal(alone.tensor, together.tensor)


def test_the_interpreter_runs_on_during_a_call(native_kernel: Any, encoded: Encode) -> None:
    """Another thread gets on while one call decodes a large picture: nobody is asked to give the interpreter up meanwhile."""
    jpeg = encoded(1200, 1200)
    target = Target(torch.zeros((1, 3, 64, 64), dtype=torch.uint8))
    cut = PictureCut(Box(0, 0, 1200, 1200), (64, 64), Box(0, 0, 64, 64))
    under_way = seen = False

    def work() -> None:
        nonlocal under_way
        for _ in range(200):  # until one is seen: the other thread may be held up for as long as a call takes
            if seen:
                return
            under_way = True
            native_kernel.jpeg_into(jpeg, cut, UINT8, target, 0)
            under_way = False

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    try:
        worker = threading.Thread(target=work)
        worker.start()
        while worker.is_alive() and not seen:
            seen = under_way
            time.sleep(0)
        worker.join()
    finally:
        sys.setswitchinterval(before)
    assert seen
