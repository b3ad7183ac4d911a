"""Where batches are made: what each stage of some of them costs, without being felt by the rest.

A look costs some microseconds a call that crosses a seam, so few batches are looked at: as many as `SHARE` of the maker's time and
`A_SAMPLE` allow, by what looks have cost so far. Between looks the seams are out of the libraries again.
"""

from __future__ import annotations

import importlib
import multiprocessing.connection
import multiprocessing.queues
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import Any

from pipefix import seams
from pipefix.loader.book import BLIND, FAILED, READY, Book, Look, Page, samples_in
from pipefix.seams.seam import Patches, install_all, names
from pipefix.seams.tap import OWN_BEFORE, OWN_DECODED, OWN_RAW, Tap
from pipefix.vocabulary.stage import Stage

SHARE = 0.0015
"""Of the making of batches may be spent on looking."""
A_SAMPLE = 1500
"""Nanoseconds a sample that looking may cost."""
FIRST = 3
"""Looks before any batch is left out: libraries that are imported with the first samples are found by then."""
LONGEST = 10_000
"""Batches between two looks, at most."""
WAITING = 0.5
"""Code that computes for less than this part of its time is waiting."""


class StageClock:
    """Times fetchers of one process. Also a ``worker_init_fn``: it calls the user's own, then begins in that worker."""

    def __init__(
        self, book: Book, init: Callable[[int], object] | None = None, *, stages: bool = True, batched: bool = True
    ) -> None:
        self._book, self._init, self._stages = book, init, stages
        self._page: Page | None = None
        self._tap = Tap()
        self._patches = Patches()
        self._handed = Handed()
        self._batches = self._samples = self._made = self._cost = 0
        self._batched = batched
        self._state = READY
        self._next = self._looks = 0
        self._look_ns = 0.0
        self._begun = 0
        self._call_ns = 0.0

    @property
    def users(self) -> Callable[[int], object] | None:
        """The ``worker_init_fn`` that it was given."""
        return self._init

    def __call__(self, worker: int) -> None:
        if self._init is not None:
            self._init(worker)
        self.begin(worker)
        self._handed.attach()
        self._replace_fetch()

    def begin(self, worker: int = 0) -> None:
        """This process writes to its page from now on."""
        self._page = self._book.page(worker)
        self._batches, self._samples, self._made, self._cost, _ = self._page.totals
        self._tap = Tap()
        self._state = READY if self._stages else BLIND
        self._next = 0 if self._stages else -1
        self._page.count(self._batches, self._samples, self._made, self._cost, self._state)

    def close(self) -> None:
        """Everything in this process is as it was."""
        self._tap.active = False
        self._patches.undo()
        self._handed.detach()

    def _replace_fetch(self) -> None:
        """In a worker, for the fetcher that it is about to make; the process serves this loader alone."""
        from torch.utils.data._utils import fetch

        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            kind.fetch = self.timed(kind.fetch)  # type: ignore[method-assign]

    def timed(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        """``fetch(fetcher, order)``, with its cost written down."""

        def timed_fetch(fetcher: Any, order: Any) -> Any:
            if self._next == 0 and self._prepared():
                return self._look(fetch, fetcher, order)
            self._next -= 1
            begun = perf_counter_ns()
            data = fetch(fetcher, order)
            spent = perf_counter_ns() - begun
            self._count(self._samples_of(order, data), spent)
            return data

        return timed_fetch

    def _samples_of(self, order: Any, data: Any) -> int:
        return len(order) if isinstance(order, list) else samples_in(data) if self._batched else 1

    def _count(self, samples: int, spent: int) -> None:
        self._batches += 1
        self._samples += samples
        self._made += spent
        self._page.count(self._batches, self._samples, self._made, self._cost, self._state)  # type: ignore[union-attr]

    # -- looking -------------------------------------------------------------------------------------------------------

    def _look(self, fetch: Callable[..., Any], fetcher: Any, order: Any) -> Any:
        begun = self._begun
        tap, collate = self._tap, fetcher.collate_fn
        between = [0, 0]
        samples = 0

        def timed_collate(drawn: Any) -> Any:
            nonlocal samples
            tap.end()
            if getattr(fetcher, "auto_collation", False):
                samples = len(drawn)
            between[0] = perf_counter_ns()
            batch = collate(drawn)
            between[1] = perf_counter_ns()
            return batch

        fetcher.collate_fn = timed_collate
        cpu = thread_time_ns()
        tap.active = True
        tap.begin(None)
        ready = perf_counter_ns()
        try:
            data = fetch(fetcher, order)
        finally:
            # Of a batch that was not made nothing is written down; the next one is looked at.
            if tap.live:
                tap.end()
            tap.active = False
            fetcher.collate_fn = collate
            done = perf_counter_ns()
            cpu = thread_time_ns() - cpu
            self._patches.pause()
        samples = samples or self._samples_of(order, data)
        calls = self._note(samples, between[1] - between[0], done - ready, done, cpu)
        self._plan(samples, done - ready, ready - begun + perf_counter_ns() - done + int(calls * self._call_ns))
        self._count(samples, done - ready)
        return data

    def _prepared(self) -> bool:
        """The seams are in. Where they cannot be, the training goes on without being looked into."""
        self._begun = perf_counter_ns()
        try:
            self._patches.resume()
            if self._looks < FIRST:
                install_all(self._tap, self._patches)
            if self._looks == 0:
                self._call_ns = calibrate()
        except Exception:  # noqa: BLE001 - whatever a library does to being patched, it is not the training's fault
            self._patches.undo()
            self._next, self._state = -1, FAILED
            return False
        self._looks += 1
        self._tap.clear()
        return True

    def _note(self, samples: int, collate: int, made: int, at: int, cpu: int) -> int:
        sums = stages(self._tap, cpu, self._call_ns)
        calls = sum(self._tap.calls)
        handed, sent = self._handed.take()
        assert self._page is not None
        self._page.write(
            Look(
                0, at, samples, sums[Stage.STORAGE], sums[Stage.DECODE], sums[Stage.AUGMENT], sums[None], collate,
                self._tap.bytes_read, cpu, made, handed, sent, calls,
            )
        )  # fmt: skip
        return calls

    def _plan(self, samples: int, batch: int, cost: int) -> None:
        """How many batches are left out now, so that looks stay within what may be spent."""
        self._cost += cost
        if self._looks < FIRST:
            self._next = 0
            return
        # Not the mean of all: the first looks installed what the others find.
        self._look_ns = cost if self._looks == FIRST else self._look_ns + (cost - self._look_ns) / 8
        allowed = max(1.0, min(batch * SHARE, samples * A_SAMPLE))
        self._next = min(LONGEST, max(1, int(self._look_ns / allowed)))


def stages(tap: Tap, cpu: int, call_ns: float) -> dict[Stage | None, int]:
    """The tap's charges by stage, less what timing them took; None for the user's own code of no stage.

    Own code after a read works on raw bytes, after a decode on values. Before either, it waits for a source that no seam knows, or
    works on data in memory, or only looks things up.
    """
    sums: dict[Stage | None, int] = dict.fromkeys((Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, None), 0)
    for key, (stage, _) in enumerate(tap.names):
        wall = max(0, tap.wall[key] - int(tap.calls[key] * call_ns))
        if key == OWN_BEFORE:
            continue
        home = Stage.DECODE if key == OWN_RAW else Stage.AUGMENT if key == OWN_DECODED else stage
        sums[home] = sums.get(home, 0) + wall
    before = tap.wall[OWN_BEFORE]
    if tap.foreign:
        # Other threads crossed the seams, while this one waited for them: its waiting is theirs, in proportion.
        total = sum(tap.foreign.values())
        for key, spent in tap.foreign.items():
            home = tap.names[key][0]
            sums[home] = sums.get(home, 0) + before * spent // max(1, total)
    elif cpu < WAITING * before:
        sums[Stage.STORAGE] += before
    else:
        sums[None if sums[Stage.STORAGE] or sums[Stage.DECODE] else Stage.AUGMENT] += before
    return sums


def calibrate(calls: int = 200) -> float:
    """Nanoseconds that a timed call adds, here and now."""
    tap = Tap()
    tap.active = True

    def nothing() -> None:
        return None

    best = float("inf")
    for _ in range(3):
        tap.begin(None)
        begun = perf_counter_ns()
        for _ in range(calls):
            tap.through(Stage.DECODE, "nothing", nothing)
        spent = perf_counter_ns() - begun
        tap.end()
        best = min(best, spent / calls)
    return best


class Handed:
    """Processor time that a worker's feeder thread spends on packing batches and on sending them."""

    def __init__(self) -> None:
        self._spent = self._sent = 0
        self._taken = (0, 0)
        self._originals: list[tuple[Any, str, Any]] = []

    def take(self) -> tuple[int, int]:
        """Nanoseconds and batches since it was last asked."""
        spent, sent = self._spent, self._sent
        before, self._taken = self._taken, (spent, sent)
        return spent - before[0], sent - before[1]

    def attach(self) -> None:
        pickler = multiprocessing.queues._ForkingPickler  # type: ignore[attr-defined]
        connection = multiprocessing.connection.Connection
        send = connection.send_bytes
        counts = self

        class TimedPickler(pickler):  # type: ignore[misc,valid-type]
            @classmethod
            def dumps(cls, obj: Any, protocol: int | None = None) -> Any:
                begun = thread_time_ns()
                try:
                    return pickler.dumps(obj, protocol)
                finally:
                    counts._spent += thread_time_ns() - begun

        def timed_send(self: Any, buf: Any, offset: int = 0, size: int | None = None) -> None:
            begun = thread_time_ns()
            send(self, buf, offset, size)
            counts._spent += thread_time_ns() - begun
            counts._sent += 1

        for owner, name, wrapper in (
            (multiprocessing.queues, "_ForkingPickler", TimedPickler),
            (connection, "send_bytes", timed_send),
        ):
            self._originals.append((owner, name, vars(owner).get(name, getattr(owner, name))))
            setattr(owner, name, wrapper)

    def detach(self) -> None:
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)
        self._originals.clear()


def preload() -> None:
    """Import every seam here and now: processes that are forked from this one find them loaded."""
    for name in names():
        importlib.import_module(f"{seams.__name__}.{name}")
