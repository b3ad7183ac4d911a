"""Remedies that work on whole batches in the dataset: fetched together (``__getitems__``), tokenised together."""

from __future__ import annotations

import numpy as np

from pipefix.diagnosis.throughput import draws
from pipefix.measurement.statistics import Floats
from pipefix.plan.case import Case
from pipefix.plan.plan import Step
from pipefix.plan.remedy import Remedy
from pipefix.vocabulary.quantity import Interval, percent, seconds
from pipefix.vocabulary.stage import Stage

SMALL = 0.05
"""A stage below this part of a sample's making is not worth a rewrite."""
SHORT_WAIT = 100e-6
"""Seconds a sample: a shorter wait is over before another thread has begun."""
TOGETHER = Interval(8.0, 4.0, 16.0)
"""Requests that are in flight at once when a batch is fetched together."""
CALL_SECONDS = Interval(50e-6, 10e-6, 100e-6)
"""What transformers does in Python for each call of a tokeniser, however many texts it is given."""


class BatchedFetch(Remedy):
    """``__getitems__``: the dataset gets a batch's indices at once, and its waits overlap."""

    id = "batched-fetch"
    stage = Stage.STORAGE
    title = "Fetch a batch's samples together (__getitems__)"
    by_hand = "the dataset would need a __getitems__ of its own, which only its author can write"

    def answer(self, case: Case) -> Step:
        if case.measurement.settings.kind == "iterable":
            return self.declined("an IterableDataset is not asked for indices")
        if case.fetches_batches:
            return self.declined("the dataset is asked for all samples of a batch at once already")
        if case.batch < 2:
            return self.declined(f"a batch holds {case.batch} sample: there is nothing to fetch together")
        if not (reading := case.wall(Stage.STORAGE)):
            return self.declined("nothing is read from storage while samples are made")
        part, waiting_s = case.model.making[Stage.STORAGE.value], case.diagnosis.stages[Stage.STORAGE].waiting
        takes, idle = float(part.wall[0]), float(max(0.0, part.wall[0] - part.cpu[0]))  # a core is not needed while it is idle
        waited = min(idle, waiting_s) if waiting_s is not None else idle
        if not waited > 0.5 * takes > 0:
            instead = "queues for a CPU" if idle > 2 * waited else "computes"
            return self.declined(f"reading ({seconds(reading)} a sample) {instead} rather than waits, so nothing would overlap")
        if waited < SHORT_WAIT:
            return self.declined(f"reading waits {seconds(waited)} a sample, less than it takes to have other threads wait instead")
        share = takes / sum(float(each.wall[0]) for each in case.model.making.values())
        if share < SMALL:
            return self.declined(f"waiting for storage is {percent(share)} of a sample's making")
        together = TOGETHER.mapped(lambda count: min(float(case.batch), count))
        waiting = waited / takes
        left = 1 - waiting + waiting / draws(together, "together")
        return self.proposed(
            f"Reading takes {seconds(reading)} a sample, {percent(waiting)} of it waiting; {together.value:.0f} requests at once "
            "share the wait",
            case.predicted(case.model.scaled(Stage.STORAGE, left)),
            "Give the dataset __getitems__(self, indices) -> list of samples, which starts all reads of the batch at once "
            "(a ThreadPoolExecutor of 8, or the store's own range or batch request).",
        )


class BatchedTokenisation(Remedy):
    """One call of the tokeniser for a batch: Python's part is paid once, and idle cores share the native part."""

    id = "batched-tokenisation"
    stage = Stage.DECODE
    title = "Tokenise a batch's texts together"
    by_hand = "tokenising would move from the dataset to collate_fn, which is your code"

    def answer(self, case: Case) -> Step:
        if not (tokenisers := case.operations.tokenisers):
            return self.declined("no tokeniser was seen")
        if case.batch < 2:
            return self.declined(f"a batch holds {case.batch} sample: there is nothing to tokenise together")
        op = tokenisers[0]
        if "batch" in op.name.lower() or case.fetches_batches:
            return self.declined(f"{op.name} is given whole batches already")
        spent = sum(tokeniser.wall_s for tokeniser in tokenisers)
        whole = sum(float(part.wall[0]) for part in case.model.making.values())
        if spent < SMALL * whole:
            return self.declined(f"tokenising takes {seconds(spent)} a sample, {percent(spent / whole)} of its making")
        python = not op.name.startswith("tokenizers.")
        threads = case.measurement.cores if not case.measurement.workers else 1.0
        if not python and threads < 2:
            return self.declined(f"{op.name} is native code: a list of texts takes one core as long as one text after the other")
        python_s = min(CALL_SECONDS.value, spent / 2) if python else 0.0
        return self.proposed(
            f"{op.name} takes {seconds(spent)} a sample, in a call of its own{_saves(python_s, threads)}",
            case.predicted(case.model.scaled(_stage_of(case, op.name), self._left(case, op.name, spent, python, threads))),
            "Return plain text from __getitem__ and call the tokeniser once on the list of texts in collate_fn.",
        )

    def _left(self, case: Case, name: str, spent: float, python: bool, threads: float) -> Floats:
        """The part of the stage that remains."""
        saved = np.minimum(draws(CALL_SECONDS, "call"), 0.5 * spent) if python else 0.0
        shared = draws(Interval(threads, 1 + 0.4 * (threads - 1), threads), "threads")
        part = min(1.0, spent / max(case.model.wall(_stage_of(case, name)), 1e-12))
        return np.asarray(1 - part + part * (spent - saved) / spent / shared)


def _saves(python_s: float, threads: float) -> str:
    phrases = [f"{seconds(python_s)} of it are Python's"] if python_s else []
    if threads >= 2:
        phrases.append(f"{threads:g} cores could share the native part")
    return "; " + " and ".join(phrases)


def _stage_of(case: Case, name: str) -> Stage:
    return Stage.DECODE if any(op.name == name for op in case.diagnosis.stages[Stage.DECODE].ops) else Stage.AUGMENT
