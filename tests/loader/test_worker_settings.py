"""What a plan sets in workers: in a process of its own, for it is not taken back."""

from __future__ import annotations

import subprocess

CAPPED = """
import os
os.environ["OMP_NUM_THREADS"] = os.environ["NUMEXPR_NUM_THREADS"] = "9"
import cv2, torch
from functools import partial
from pipefix.loader.workers.start import FirstInWorker, cap_threads
torch.set_num_threads(4)
FirstInWorker(partial(cap_threads, 2), print)(7)
print(torch.get_num_threads(), os.environ["OMP_NUM_THREADS"], os.environ["NUMEXPR_NUM_THREADS"], cv2.getNumThreads())
"""


def test_threads_are_capped_and_then_the_users_own_is_called(preloaded: str) -> None:
    process = subprocess.run([*preloaded.split(), "-c", CAPPED], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == ["7", "2 2 2 2"]
