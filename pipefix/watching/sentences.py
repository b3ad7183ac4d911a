"""Words for the watch: what changed, and how a loader is doing."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pipefix.vocabulary import nvml, quantity
from pipefix.vocabulary.stage import Stage
from pipefix.watching.window import Notice, Spread, Window

_DOES = {
    Stage.STORAGE: "Reading from storage",
    Stage.DECODE: "Decoding",
    Stage.AUGMENT: "Augmentation",
    Stage.COLLATE: "Collating",
    Stage.IPC: "Handing over batches",
    Stage.STEP: "The training step",
}
_CAUSES = {
    "larger-samples": "samples have become larger",
    "busy-machine": "it takes the same processor time as before: something else keeps the machine busy",
    "more-work": "it takes more processor time as well: every sample is more work, or the processors have become slower",
}
_ADVICE = {
    Stage.STORAGE: "Where to look: the disk or the network share, other readers of it, and whether the cache still holds the data.",
    Stage.DECODE: "Where to look: what kind of files are read since then, and how many threads decode.",
    Stage.AUGMENT: "Where to look: transforms whose cost depends on the epoch or the sample.",
    Stage.COLLATE: "Where to look: the collate function, and samples of growing length.",
    Stage.IPC: "Where to look: what a batch holds besides tensors, and the room in /dev/shm.",
    Stage.STEP: "Where to look: clocks and heat of the device, other jobs on it, logging and checkpoints.",
}


def sentence(notice: Notice) -> str:
    """``Decoding takes 23 % longer: 5.1 ms a sample instead of 4.2 ms (run.json), since 14:05.``"""
    stage = Stage(notice.stage) if notice.stage is not None else None
    if notice.kind == "died":
        return f"A worker process ended by itself: {notice.cause}."
    is_machine = "machine" in (notice.kind, notice.cause)
    activity = "All that computes" if is_machine else _DOES[stage] if stage is not None else "Starting an epoch"
    if notice.kind == "over":
        if notice.cause == "larger-samples":
            return "Samples are again as large as they were before."
        if stage is None and not is_machine:
            return "Epochs start again as fast as they did before."
        return f"{activity} costs again what it did before."
    if notice.kind == "cheaper":
        return f"{activity} has become cheaper for good than in {notice.against}."
    figures = _figures(notice)
    if notice.kind == "larger":
        return f"Samples have become larger: {figures}{_since(notice)}."
    cause = f" ({_CAUSES[notice.cause]})" if notice.cause in _CAUSES else ""
    more = quantity.percent((notice.ratio or 1.0) - 1.0)
    return f"{activity} takes {more} longer: {figures}{_since(notice)}{cause}."


def advice(notice: Notice) -> str | None:
    """Where to look for the reason."""
    if notice.kind not in ("slower", "costlier") or notice.cause is not None or notice.stage is None:
        return None
    return _ADVICE.get(Stage(notice.stage))


def _figures(notice: Notice) -> str:
    read = quantity.size if notice.kind == "larger" else quantity.seconds
    each = "" if notice.kind == "restarts" else " a sample"
    return f"{read(notice.after or 0.0)}{each} instead of {read(notice.before or 0.0)} ({notice.against})"


def _since(notice: Notice) -> str:
    return f", since {clock(notice.since)}" if notice.since is not None else ""


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def line(window: Window) -> str:
    """One window in one line, for a log."""
    parts = [clock(window.time), quantity.rate(window.rate)]
    if window.waiting is not None:
        parts.append(f"waiting {quantity.percent(window.waiting)}")
    parts += [f"{name} {quantity.seconds(cost.s)}" for name, cost in window.stages.items()]
    if window.drifting:
        parts.append(f"DRIFT: {', '.join(window.drifting)}")
    return "  ".join(parts)


LATE = 3
"""Windows without word after which a job's last one is called old."""


def age(window: Window, now: float) -> str | None:
    """That a window is no present state, as its job says nothing any more; None where it is one. ``now``: Unix time."""
    passed = now - window.time
    if window.ended or passed <= LATE * window.seconds + 1:
        return None
    return f"This window is {quantity.seconds(passed)} old: the job was killed, hangs, or writes elsewhere now."


def state(window: Window) -> Iterator[str]:
    who = "".join(f" {name}={value}" for name, value in window.labels.items())
    last = ", the last: the job closed its watch" if window.ended else ""
    yield f"{clock(window.time)}  window {window.number}, {quantity.seconds(window.seconds)}{last}{' ' + who if who else ''}"
    yield f"  delivered  {quantity.rate(window.rate)}, {quantity.counted(window.batches, 'batch')}, epoch {max(1, window.epochs)}"
    if window.waiting is not None:
        each = f"; {quantity.seconds(window.wait.p50)} a batch{_spread(window.wait)}" if window.wait is not None else ""
        yield f"  waiting    {quantity.percent(window.waiting)} of the loop's time{each}"
    if window.step is not None:
        yield f"  step       {quantity.seconds(window.step.p50)} a batch{_spread(window.step)}"
    if window.workers:
        busy = f", busy {quantity.percent(window.busy)} of their time" if window.busy is not None else ""
        yield f"  workers    {window.workers}{busy}"
    if window.bytes is not None:
        yield f"  read       {quantity.size(window.bytes)} a sample"
    for name, words in (("machine", _machine(window.machine)), ("GPU", nvml.in_words(window.machine, "gpu_"))):
        if words:
            yield f"  {name:<9}  {words}"
    for name, cost in window.stages.items():
        mark = "  <- drifting" if name in window.drifting else ""
        yield f"  {name:<9}  {quantity.seconds(cost.s)} a sample ({quantity.counted(cost.batches, 'batch')}){mark}"
    if window.declined is not None:
        yield f"  No figures by stage: {window.declined}."


def _machine(figures: dict[str, float]) -> str:
    named = {"cpu": "processors", "memory": "memory"}
    return ", ".join(f"{word} {quantity.percent(figures[key])} in use" for key, word in named.items() if key in figures)


def _spread(spread: Spread) -> str:
    below = ", ".join(f"{share} % below {quantity.seconds(end)}" for share, end in ((95, spread.p95), (99, spread.p99)))
    return f" ({below}, worst {quantity.seconds(spread.max)})"
