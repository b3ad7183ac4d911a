"""What a plan sets in workers: threads of native libraries, of which one a process is enough where there are as many as cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class CappedThreads:
    """A ``worker_init_fn`` that limits them, and then does what the user's own does."""

    def __init__(self, threads: int, then: Callable[[int], object] | None = None) -> None:
        self.threads, self.then = threads, then

    def __call__(self, worker: int) -> None:
        cap_threads(self.threads)
        if self.then is not None:
            self.then(worker)


def cap_threads(threads: int) -> None:
    """In this process, for libraries that are loaded and for those that will be. 0 is none beside the caller, for OpenCV."""
    for name in _VARIABLES:
        os.environ[name] = str(max(1, threads))
    torch.set_num_threads(max(1, threads))
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0 if threads <= 1 else threads)
    try:
        import threadpoolctl  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return  # what is loaded already keeps its threads; most libraries are asked above
    threadpoolctl.threadpool_limits(max(1, threads))
