"""Whole batches asked for at once: fetched together, tokenised together."""

from __future__ import annotations

from collections.abc import Iterable

from pipefix.plan.model import draws
from pipefix.plan.plan import Step
from pipefix.plan.remedy import Remedy
from pipefix.plan.situation import Situation
from pipefix.vocabulary.quantity import Interval, percent, seconds
from pipefix.vocabulary.stage import Stage

SMALL = 0.05
"""A stage below this part of a sample's making is not worth a rewrite."""
TOGETHER = Interval(8.0, 4.0, 16.0)
"""Requests that are in flight at once when a batch is fetched together."""
TOKENISER_GAIN = Interval(1.5, 1.1, 2.5)
"""How many times faster a tokeniser takes a list of texts than one text after the other, on one core."""


class BatchedFetch(Remedy):
    """``__getitems__``: the dataset gets a batch's indices at once, and its waits overlap."""

    id = "batched-fetch"
    stage = Stage.STORAGE
    title = "Fetch a batch's samples together (__getitems__)"

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        kind = at.found.settings.kind
        if kind == "batched":
            return self.declined("the dataset has __getitems__ already")
        if kind == "iterable":
            return self.declined("an IterableDataset is not asked for indices")
        if at.batch < 2:
            return self.declined(f"a batch holds {at.batch} sample: there is nothing to fetch together")
        reading = at.wall(Stage.STORAGE)
        if not reading:
            return self.declined("nothing is read from storage while samples are made")
        if not at.waits(Stage.STORAGE):
            return self.declined(f"reading ({seconds(reading)} a sample) computes rather than waits, so nothing would overlap")
        if at.share(Stage.STORAGE) < SMALL:
            return self.declined(f"waiting for storage is {percent(at.share(Stage.STORAGE))} of a sample's making")
        together = Interval(*(min(float(at.batch), count) for count in (TOGETHER.value, TOGETHER.low, TOGETHER.high)))
        waiting = at.line.waiting(Stage.STORAGE) / at.line.wall(Stage.STORAGE)
        left = 1 - waiting + waiting / draws(together, "together")
        return self.proposed(
            f"Reading takes {seconds(reading)} a sample, {percent(waiting)} of it waiting; {together.value:.0f} requests at once "
            "share the wait",
            at.predicted(at.line.scaled(Stage.STORAGE, left)),
            "Give the dataset __getitems__(self, indices) -> list of samples, which starts all reads of the batch at once "
            "(a ThreadPoolExecutor of 8, or the store's own range or batch request).",
        )


class BatchedTokenisation(Remedy):
    """Texts tokenised as a list, where the tokeniser's native code loops over them."""

    id = "batched-tokenisation"
    stage = Stage.DECODE
    title = "Tokenise a batch's texts together"

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        tokenisers = at.operations.tokenisers
        if not tokenisers:
            return self.declined("no tokeniser was seen")
        if at.batch < 2:
            return self.declined(f"a batch holds {at.batch} sample: there is nothing to tokenise together")
        op = tokenisers[0]
        if "batch" in op.name.lower() or at.found.settings.kind == "batched":
            return self.declined(f"{op.name} is given whole batches already")
        spent = sum(one.wall for one in tokenisers)
        whole = sum(float(one.wall[0]) for one in at.line.making.values())
        if spent < SMALL * whole:
            return self.declined(f"tokenising takes {seconds(spent)} a sample, {percent(spent / whole)} of its making")
        stage = _stage_of(at, op.name)
        part = min(1.0, spent / at.line.wall(stage)) if at.line.wall(stage) else 0.0
        left = 1 - part + part / draws(TOKENISER_GAIN, "tokeniser")
        return self.proposed(
            f"{op.name} takes {seconds(spent)} a sample, called once a sample",
            at.predicted(at.line.scaled(stage, left)),
            "Return plain text from __getitem__ and call the tokeniser once on the list of texts in collate_fn, with "
            "TOKENIZERS_PARALLELISM=false "
            "inside workers.",
        )


def _stage_of(at: Situation, name: str) -> Stage:
    decode = at.cost(Stage.DECODE)
    return Stage.DECODE if decode is not None and any(op.name == name for op in decode.ops) else Stage.AUGMENT
