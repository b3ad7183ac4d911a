"""The diagnosis in words: one sentence for the verdict, one for each doubt."""

from __future__ import annotations

from collections.abc import Callable

from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.diagnosis.rules import Ranking
from pipefix.measurement.measurement import Measurement
from pipefix.vocabulary.quantity import Interval, percent, seconds, times
from pipefix.vocabulary.stage import Stage

ShareOf = Callable[[Stage], Interval]

CLOSURE_LIMIT = 0.02
UNATTRIBUTED_LIMIT = 0.05
NOTICEABLE = 1.1
STARVED = 0.15
WAITING = 0.5
"""A stage that neither computes nor queues for a CPU in this part of its time is called waiting."""
HANDING_OVER = "handing batches over to the training process"


def verdict(found: Measurement, diagnosis: Diagnosis, ranking: Ranking, rival: Stage | None, share_of: ShareOf) -> str:
    kind = diagnosis.verdict.kind
    if kind == "input-bound" and ranking.stage is not None:
        return _input_bound(found, diagnosis, ranking.stage, share_of(ranking.stage))
    if kind == "step-bound":
        return _step_bound(found, diagnosis, share_of(Stage.STEP))
    if kind == "balanced":
        return _balanced(diagnosis, ranking, share_of)
    return _inconclusive(diagnosis, ranking, rival, share_of)


def _input_bound(found: Measurement, diagnosis: Diagnosis, stage: Stage, share: Interval) -> str:
    cost = diagnosis.stages[stage]
    top = next((op.name for op in cost.ops if op.wall > 0.5 * cost.wall.value), None)
    what = top or (HANDING_OVER if stage is Stage.IPC else None)
    named = f"{stage} ({what})" if what else str(stage)
    waiting = cost.waiting is not None and cost.waiting > WAITING * cost.wall.value
    manner = ", mostly waiting rather than computing" if waiting else ""
    if share.value == 0:
        text = f"Input-bound: {named} limits, though it runs beside other stages{manner}"
    else:
        text = f"Input-bound: {named} takes {_span(share)} of the time to deliver a sample{manner}"
    if cost.gain is not None and cost.gain.low > 1.02:
        text += f"; if it were free, throughput would be {_times(cost.gain)}"
    if diagnosis.fed is not None and found.workers:
        text += f". The step waits {percent(1 - diagnosis.fed)} of the time"
    return text + "."


def _step_bound(found: Measurement, diagnosis: Diagnosis, share: Interval) -> str:
    ratio = diagnosis.stations.supply_over_main
    step = seconds(diagnosis.stages[Stage.STEP].wall.value * (found.settings.batch_size or 1))
    text = f"Step-bound: the step takes {_span(share)} of the time, {step} a batch"
    if ratio is not None:
        text += f", and the loader could deliver {_times(ratio.inverted())} what it uses"
    gain = diagnosis.arms.get("samples-recorded")
    best = f"at most {times(max(1.0, gain.high))}" if gain is not None else "next to nothing"
    return f"{text}. Work on the model, not the data: free input would gain {best}."


def _balanced(diagnosis: Diagnosis, ranking: Ranking, share_of: ShareOf) -> str:
    if ranking.stage is None:
        ratio = diagnosis.stations.supply_over_main
        spread = f" (the loader's time over the training process's: {ratio.low:.2f}-{ratio.high:.2f})" if ratio else ""
        other = "the step" if ranking.second is Stage.STEP else "taking batches over"
        return f"Balanced: the loader and {other} keep pace with each other{spread}; a gain needs both."
    assert ranking.second is not None
    first, second = share_of(ranking.stage), share_of(ranking.second)
    return (
        f"Balanced: no single stage dominates; {ranking.stage} takes {_span(first)} of the time and "
        f"{ranking.second} {_span(second)}. A gain needs both."
    )


def _inconclusive(diagnosis: Diagnosis, ranking: Ranking, rival: Stage | None, share_of: ShareOf) -> str:
    if ranking.uncut and ranking.stage is not None:
        rest = percent(diagnosis.unattributed / diagnosis.sample.value)
        return (
            f"Inconclusive: {rest} of the time is the dataset's own code before anything is read, which no seam bounds; "
            f"of what could be cut, {ranking.stage} takes most ({_span(share_of(ranking.stage))})."
        )
    if rival is not None and ranking.stage is not None:
        gain = diagnosis.stages[rival].gain if rival in diagnosis.stages else None
        worth = f" (removing it gains {_times(gain)})" if gain is not None else ""
        return f"Inconclusive: the clocks point to {ranking.stage}, but the replayed arms to {rival}{worth}."
    if ranking.stage is None or ranking.second is None:
        return "Inconclusive: too few batches were measured to tell the stages apart."
    if ranking.lead is not None and ranking.second in (Stage.STEP, Stage.IPC) and diagnosis.stations.supply_over_main is not None:
        ratio = diagnosis.stations.supply_over_main
        if ratio.low < 1.1 and ratio.high > 1 / 1.1:
            return (
                f"Inconclusive: the loader takes {ratio.value:.2f} times ({ratio.low:.2f}-{ratio.high:.2f}) as long as the "
                "training process, too close to tell which one limits."
            )
    first, second = share_of(ranking.stage), share_of(ranking.second)
    pair = f"{ranking.stage} ({_span(first)}) and {ranking.second} ({_span(second)})"
    return f"Inconclusive: {pair} are too close to tell which one limits."


def caveats(found: Measurement, diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Every doubt that applies, as (id, sentence)."""
    told: list[tuple[str, str]] = []

    def tell(name: str, sentence: str, *, when: bool = True) -> None:
        if when:
            told.append((name, sentence))

    rest = diagnosis.unattributed / diagnosis.sample.value
    tell("interrupted", "The probe was interrupted; the figures are what was known by then.", when=found.partial)
    tell(
        "idle-workers",
        f"{found.idle_workers} of {found.idle_workers + found.workers} workers gave no sample: their part of the stream is empty. "
        "The figures are for those that did; a stream needs at least as many shards as workers.",
        when=found.idle_workers > 0,
    )
    tell(
        "inconclusive",
        f"A longer run would narrow the intervals: --budget {max(60, int(found.seconds * 3))}.",
        when=diagnosis.verdict.kind == "inconclusive",
    )
    tell(
        "closure",
        f"The stages and the rest add up to {percent(1 + diagnosis.closure)} of the measured time a sample; "
        "the machine was noisy or stages overlap.",
        when=abs(diagnosis.closure) > CLOSURE_LIMIT,
    )
    tell(
        "unattributed",
        f"{percent(rest)} of the time belongs to no stage: code that no seam bounds, or workers waiting for each other.",
        when=rest > UNATTRIBUTED_LIMIT,
    )
    tell(
        "starved",
        f"For {percent(diagnosis.starved)} of the time the pipeline was ready to run and had no CPU: too many workers for "
        f"{found.cores:g} cores, or other programs on the machine.",
        when=diagnosis.starved > STARVED,
    )
    tell(
        "no-consumer",
        "Without a training step this is the loader alone; --step-ms MS or --target-rate N adds a consumer.",
        when=not found.has_consumer,
    )
    tell(
        "slowdown",
        f"Clocks at the seams slowed the timed arm by {percent(diagnosis.slowdown - 1)}; "
        "shares of cheap operations are upper bounds.",
        when=diagnosis.slowdown > NOTICEABLE,
    )
    for op, why in sorted(found.refused.items()):
        tell("not-recorded", f"Results of {op} could not be recorded, so it was not replaced in any arm: {why}.")
    tell(
        "mixed",
        f"{', '.join(found.mixed)} do the work of several stages; the library calls inside are told apart, the rest is theirs.",
        when=bool(found.mixed),
    )
    return told


def _span(share: Interval) -> str:
    low, high = percent(share.low).removesuffix(" %"), percent(share.high)
    return f"{percent(share.value)} ({low}-{high})"


def _times(gain: Interval) -> str:
    return f"{times(gain.value)} ({times(gain.low).removesuffix('x')}-{times(gain.high)})"
