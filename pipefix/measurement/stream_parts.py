"""Whether each worker of a stream goes through all of it: then more of them deliver more copies, and no more samples."""

from __future__ import annotations

import hashlib
import random
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info

from pipefix.hooks.torch_internals import end_workers
from pipefix.measurement.worker_endings import abandon
from pipefix.subject.subject import Subject
from pipefix.system.forks import lost_by_workers_of
from pipefix.vocabulary.generators import untouched
from pipefix.vocabulary.nested import leaves

WORKERS, EACH = 2, 6
"""Workers that are held against each other, and samples of each."""
FEW, PATIENT, LONGEST = 2, 3.0, 10.0
"""Of each so few where they take more than so many seconds together, and the seconds that one is waited for."""

Samples = list[tuple[bytes, ...]]
"""What a worker gave: of each sample the digests of its parts."""


def whole_stream_each(subject: Subject) -> bool | None:
    """Whether two workers give the same samples. False where that is not seen, or samples do not come.

    They do so if random numbers begin alike in both, and some part of the samples (a label, a name) is the same in both if they do
    not. None where no part is: of a stream that each worker shuffles, or one that only draws random numbers, without end.
    """
    if not subject.iterable or lost_by_workers_of(subject.loader):
        return False
    first, second = _of_two_workers(subject, partial(alike, subject.loader.worker_init_fn))
    if first != second or len(set(first)) < 2:
        return False
    first, second = _of_two_workers(subject, subject.loader.worker_init_fn)
    parts = zip(zip(*first, strict=False), zip(*second, strict=False), strict=False)
    return True if any(own == other and len(set(own)) > 1 for own, other in parts) else None


def alike(own: Callable[[int], object] | None, worker: int) -> None:
    """The loader's ``own`` start of a worker; after it every worker's random numbers begin alike."""
    if own is not None:
        own(worker)
    object.__setattr__(get_worker_info(), "seed", 7)  # from which streams seed generators of their own
    random.seed(7)
    np.random.seed(7)
    torch.default_generator.manual_seed(7)


def _of_two_workers(subject: Subject, init: Callable[[int], None] | None) -> tuple[Samples, Samples]:
    loader: DataLoader[Any] = DataLoader(
        subject.dataset, batch_size=None, num_workers=WORKERS, prefetch_factor=1, collate_fn=_digests, timeout=LONGEST,
        worker_init_fn=init, multiprocessing_context=subject.loader.multiprocessing_context,
    )  # fmt: skip
    came: dict[int, Samples] = defaultdict(list)
    iterator: Any = None
    with warnings.catch_warnings(), untouched(subject.loader):
        warnings.simplefilter("ignore")
        try:
            begun = time.monotonic()
            iterator = iter(loader)
            for worker, digests in islice(iterator, WORKERS * EACH):
                came[worker].append(digests)
                if time.monotonic() - begun > PATIENT and all(len(came[each]) >= FEW for each in range(WORKERS)):
                    break
        except (Exception, SystemExit):  # noqa: BLE001 - the user's code; what it raises is told where it is measured
            came.clear()
        finally:
            abandon(iterator)
            end_workers(iterator)
    both = min(len(came[0]), len(came[1]))
    return came[0][:both], came[1][:both]


def _digests(sample: Any) -> tuple[int, tuple[bytes, ...]]:
    """The worker that it comes from, and for each of its parts what is the same of equal ones."""
    info = get_worker_info()
    return info.id if info is not None else 0, tuple(map(_digest, leaves(sample)))


def _digest(part: Any) -> bytes:
    if isinstance(part, torch.Tensor):  # by bytes: of bfloat16 and its like numpy knows none
        part = part.detach().cpu().flatten().contiguous().view(torch.uint8).numpy()
    return hashlib.sha256(part.tobytes() if hasattr(part, "tobytes") else repr(part).encode()).digest()
