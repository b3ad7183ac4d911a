"""The table of experiments: each arm runs the same loader with some stages replaced by recordings."""

from __future__ import annotations

from dataclasses import dataclass

from pipefix.vocabulary.stage import Stage

S, D, A, C, H = Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, Stage.COLLATE, Stage.IPC


@dataclass(frozen=True)
class Experiment:
    """One way to run the pipeline."""

    name: str
    replaces: frozenset[Stage] = frozenset()
    timed: bool = True
    """Clocks at the hooks run. Off for one arm, whose difference is what the clocks cost."""
    source: str = "warm"
    """warm: the recorded samples again. cold: the same after their files were evicted. new: as the sampler gives them."""
    consumer: bool = True
    every: int = 1
    """Runs in one round out of so many: arms that only remedies read may be known less well."""
    length: float = 1.0
    """Of its blocks, compared with the other arms': the real arm carries the clocks."""


RECORD = Experiment("record", timed=False, source="new", consumer=False)  # makes the recording
REAL = Experiment("real", length=2.0)  # the pipeline as it is, its files in the page cache
PLAIN = Experiment("plain", timed=False)  # the same without clocks: what the instrument costs
COLD = Experiment("real-cold", source="cold")  # the pipeline as it is, its files evicted
NO_STORAGE = Experiment("storage-from-memory", frozenset({S}))  # what if storage were free?
NO_DECODE = Experiment("decode-recorded", frozenset({D}))  # what if decoding were free?
NO_AUGMENT = Experiment("augment-recorded", frozenset({A}))  # what if augmentation were free?
NO_COLLATE = Experiment("collate-recorded", frozenset({C}))  # what if collating were free?
NO_HANDOVER = Experiment("handover-skipped", frozenset({H}))  # what if crossing from the worker were free?
DECODED = Experiment("decoded-recorded", frozenset({S, D}), every=2)  # what if samples were stored decoded?
SAMPLES = Experiment("samples-recorded", frozenset({S, D, A}), every=2)  # what if samples were stored ready?
PREBUILT = Experiment("batch-prebuilt", frozenset({S, D, A, C}), consumer=False)  # what does the hand-over alone carry?
FLOOR = Experiment("loader-floor", frozenset({S, D, A, C, H}), every=2)  # what does the loader itself take, whatever the data?
TRACED = Experiment("traced")  # the pipeline as it is, with every operation's begin and end noted
NO_SAMPLER = Experiment("sampler-recorded")  # what if the sampler were free?
SUPPLY = Experiment("no-consumer", consumer=False)  # what if the step were free?

POOL: tuple[Experiment, ...] = (
    RECORD, REAL, PLAIN, NO_STORAGE, NO_DECODE, NO_AUGMENT, NO_COLLATE, NO_HANDOVER,
    DECODED, SAMPLES, PREBUILT, FLOOR, SUPPLY, NO_SAMPLER, COLD, TRACED,
)  # fmt: skip
"""Arms that run in the loader's own processes, by the number that tells those processes which one is on."""

ALONE = "consumer-alone"
"""In the main process only, without a loader."""
RESIDENT = "consumer-resident"
"""On a batch that lies on the device: what the step takes less is the part of its time that the copy takes."""

LEAVE_ONE_OUT = {S: NO_STORAGE, D: NO_DECODE, A: NO_AUGMENT, C: NO_COLLATE, H: NO_HANDOVER, Stage.STEP: SUPPLY}
"""The arm that measures what a stage's disappearance would be worth. Transfer has none: without its copy there is no step."""
FAILED = "it failed when tried"
"""How it is told why other settings, once tried, were given up."""
START_UP = "start-up"
"""By this name it is told why the starts of epochs were not timed."""
