"""Times the stages of a few batches where they are made, in workers or this process, at a bounded cost.

A look costs some microseconds a call that crosses a hook, so few batches are looked at: as many as `SHARE` of the maker's time and
`A_SAMPLE` allow, by what looks have cost so far. Between looks the hooks are out of the libraries again. A worker
in the place of one of the epoch before goes on from what that one's looks cost, which its page tells.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from time import perf_counter_ns, thread_time_ns
from typing import Any

from pipefix import hooks
from pipefix.hooks.charges import OWN_BEFORE, OWN_DECODED, OWN_RAW
from pipefix.hooks.install import MODULES, install_all
from pipefix.hooks.ipc_timer import IpcTimer
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.hooks.torch_internals import fetchers
from pipefix.loader.metering.cost_record import BLIND, FAILED, READY, CostPage, CostRecord, TimedBatch, samples_in
from pipefix.loader.policy.read_policy import Asked
from pipefix.system.run_queue import RunQueue
from pipefix.vocabulary.stage import Stage

SHARE = 0.0015
"""Of the making of batches may be spent on looking."""
A_SAMPLE = 1500
"""Nanoseconds a sample that looking may cost."""
FIRST = 3
"""Looks before any batch is left out: libraries that are imported with the first samples are found by then.
Only a page's first maker takes them at once."""
_HERE = str(Path(hooks.__file__).parent.parent) + os.sep
LONGEST = 10_000
"""Batches between two looks, at most."""
TYPICAL_OF = 5
"""Latest looks whose median is what a look costs."""
WAITING = 0.5
"""Code that computes, or is ready to and has no CPU, for less than this part of its time is waiting."""


class StageClock:
    """Times fetchers of one process. Also a ``worker_init_fn``: it calls the user's own, then begins in that worker."""

    def __init__(
        self, record: CostRecord, then: Callable[[int], object] | None = None, *, stages: bool = True, batched: bool = True,
        a_sample: float = A_SAMPLE,
    ) -> None:  # fmt: skip
        """``a_sample``: nanoseconds a sample that looking may cost, besides `SHARE`."""
        self.then = then
        """The user's own ``worker_init_fn``."""
        self.record, self._stages, self._a_sample, self._batched = record, stages, a_sample, batched
        self._page: CostPage | None = None
        self._timer = SampleTimer()
        self._patches = Patches()
        self._handed = IpcTimer(thread_time_ns)
        """What a worker's feeder thread computes to pack batches and to send them."""
        self._batches = self._samples = self._made = self._cost = 0
        self._state = READY
        self._next = self._looks = 0
        self._free = True
        """No maker before this one looked, so that the first looks come at once."""
        self._look_costs: deque[int] = deque(maxlen=TYPICAL_OF)
        self._begun, self._fetching, self._call_ns = 0, False, 0.0

    def __call__(self, worker: int) -> None:
        if self.then is not None:
            self.then(worker)
        self.begin(worker)
        self._handed.attach()
        for kind in fetchers():  # the fetcher is about to be made, and the process serves this loader alone
            kind.fetch = self.timed(kind.fetch)

    def begin(self, worker: int = 0) -> None:
        """This process writes to its page from now on."""
        self._page = self.record.page(worker)
        self._batches, self._samples, self._made, self._cost, _ = self._page.totals
        self._state = READY if self._stages else BLIND
        self._free = not self._cost
        self._next = self._owed() if self._stages else -1
        self._page.count(self._batches, self._samples, self._made, self._cost, self._state)

    def close(self) -> None:
        """Everything in this process is as it was."""
        self._timer.active = False
        self._patches.undo()
        self._handed.detach()

    def timed(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        """``fetch(fetcher, order)``, with its cost written down."""

        def timed_fetch(fetcher: Any, order: Any) -> Any:
            if self._fetching:  # of a loader inside the dataset: part of the sample
                return fetch(fetcher, order)
            self._fetching, begun = True, perf_counter_ns()
            try:
                if self._next == 0 and self._prepared():
                    return self._look(fetch, fetcher, order)
                self._next -= 1
                data = fetch(fetcher, order)
            except BaseException as error:
                without_our_frames(error)
                raise
            finally:
                self._fetching = False
            spent = perf_counter_ns() - begun
            self._count(self._samples_of(order, data), spent)
            return data

        return timed_fetch

    def _samples_of(self, order: Any, data: Any) -> int:
        indices = order.index if isinstance(order, Asked) else order
        return len(indices) if isinstance(indices, list) else samples_in(data) if self._batched else 1

    def _count(self, samples: int, spent: int) -> None:
        self._batches += 1
        self._samples += samples
        self._made += spent
        self._page.count(self._batches, self._samples, self._made, self._cost, self._state)  # type: ignore[union-attr]

    # -- looking -------------------------------------------------------------------------------------------------------

    def _look(self, fetch: Callable[..., Any], fetcher: Any, order: Any) -> Any:
        begun = self._begun
        timer, collate = self._timer, fetcher.collate_fn
        between = [0, 0]
        samples = 0

        def timed_collate(drawn: Any) -> Any:
            nonlocal samples
            timer.end()
            if getattr(fetcher, "auto_collation", False):
                samples = len(drawn)
            between[0] = perf_counter_ns()
            batch = collate(drawn)
            between[1] = perf_counter_ns()
            return batch

        fetcher.collate_fn = timed_collate
        queue = RunQueue()
        queued = queue.waited()
        cpu = thread_time_ns()
        timer.active = True
        timer.begin(None)
        ready = perf_counter_ns()
        try:
            data = fetch(fetcher, order)
        finally:
            # Of a batch that was not made nothing is written down; the next one is looked at.
            if timer.live:
                timer.end()
            timer.active = False
            fetcher.collate_fn = collate
            done = perf_counter_ns()
            cpu = thread_time_ns() - cpu
            queued = queue.waited() - queued
            queue.close()
            self._patches.pause()
        samples = samples or self._samples_of(order, data)
        sums, calls, handed = stages(timer, cpu + queued, self._call_ns), sum(timer.calls), self._handed.take()
        look = TimedBatch(
            0, done, samples, sums[Stage.STORAGE], sums[Stage.DECODE], sums[Stage.AUGMENT], sums[None], between[1] - between[0],
            timer.bytes_read, cpu, done - ready, handed.dumps_ns + handed.send_ns, handed.count,
        )  # fmt: skip
        self._page.write(look)  # type: ignore[union-attr]
        self._plan(samples, done - ready, ready - begun + perf_counter_ns() - done + int(calls * self._call_ns))
        self._count(samples, done - ready)
        return data

    def _prepared(self) -> bool:
        """The hooks are in. Where they cannot be, the training goes on without being looked into."""
        self._begun = perf_counter_ns()
        try:
            self._patches.resume()
            if self._looks < FIRST:
                install_all(self._timer, self._patches)
            if self._looks == 0:
                self._call_ns = calibrate()
        except Exception:  # noqa: BLE001 - whatever a library does to being patched, it is not the training's fault
            self._patches.undo()
            self._next, self._state = -1, FAILED
            return False
        self._looks += 1
        self._timer.clear()
        return True

    def _plan(self, samples: int, batch: int, cost: int) -> None:
        """How many batches are left out now, so that looks stay within what may be spent."""
        self._cost += cost
        if self._looks < FIRST:
            self._next = 0 if self._free else max(1, self._owed())
            return
        # The median of the latest: what the first looks install the others find, and a look during which the machine did something
        # else does not put off the next one for thousands of batches.
        self._look_costs.append(cost)
        allowed = max(1.0, min(batch * SHARE, samples * self._a_sample))
        self._next = min(LONGEST, max(1, int(median_low(self._look_costs) / allowed)))

    def _owed(self) -> int:
        """Batches, such as those made so far, until all looks together are within what they may cost."""
        allowed = min(self._made * SHARE, self._samples * self._a_sample)
        return min(LONGEST, int(max(0.0, self._cost - allowed) * self._batches / max(1.0, allowed)))


def stages(timer: SampleTimer, computed: int, call_ns: float) -> dict[Stage | None, int]:
    """The timer's charges by stage, less what timing them took; None for the user's own code of no stage.

    Own code after a read works on raw bytes, after a decode on values. Before either, it waits for a source that no hook knows, or
    works on data in memory, or only looks things up. ``computed``: CPU time and that on a run queue, which is
    no waiting for a source.
    """
    sums: dict[Stage | None, int] = dict.fromkeys((Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, None), 0)
    before = 0
    for key, (stage, _) in enumerate(timer.names):
        wall = max(0, timer.wall[key] - int(timer.entered[key] * call_ns))
        if key == OWN_BEFORE:
            before = wall
            continue
        home = Stage.DECODE if key == OWN_RAW else Stage.AUGMENT if key == OWN_DECODED else stage
        sums[home] = sums.get(home, 0) + wall
    if timer.foreign:
        # Other threads crossed the hooks, while this one waited for them: its waiting is theirs, in proportion.
        total = sum(timer.foreign.values())
        for key, spent in list(timer.foreign.items()):  # they go on meanwhile
            home = timer.names[key][0]
            sums[home] = sums.get(home, 0) + before * spent // max(1, total)
    elif computed < WAITING * before:
        sums[Stage.STORAGE] += before
    else:
        sums[None if sums[Stage.STORAGE] or sums[Stage.DECODE] else Stage.AUGMENT] += before
    return sums


def calibrate(calls: int = 200) -> float:
    """Nanoseconds that a timed call adds, here and now."""
    timer = SampleTimer()
    timer.active = True

    def nothing() -> None:
        return None

    best = float("inf")
    for _ in range(3):
        timer.begin(None)
        begun = perf_counter_ns()
        for _ in range(calls):
            timer.timed_call(Stage.DECODE, "nothing", nothing)
        spent = perf_counter_ns() - begun
        timer.end()
        best = min(best, spent / calls)
    return best


def preload() -> None:
    """Import every hook here and now: processes that are forked from this one find them loaded."""
    for name in MODULES:
        importlib.import_module(f"{hooks.__name__}.{name}")


def without_our_frames(error: BaseException | None) -> None:
    """An error of the user's code shows the frames that it would show unwatched, also where it came through a hook."""
    visited_ids: set[int] = set()
    while error is not None and id(error) not in visited_ids:
        visited_ids.add(id(error))
        theirs: list[Any] = []
        trace = error.__traceback__
        while trace is not None:
            if not trace.tb_frame.f_code.co_filename.startswith(_HERE):
                theirs.append(trace)
            trace = trace.tb_next
        for frame, following in pairwise([*theirs, None]):
            frame.tb_next = following
        error.__traceback__ = theirs[0] if theirs else None
        error = error.__cause__ or error.__context__
