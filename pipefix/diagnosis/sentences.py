"""Puts a diagnosis into words: one sentence for the verdict, one for each doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipefix.diagnosis.clock_overhead import slower_by
from pipefix.diagnosis.diagnosis import Diagnosis, OpCost
from pipefix.diagnosis.doubts import Doubt, DoubtKind, busiest_line
from pipefix.diagnosis.verdict_rules import Ranking
from pipefix.hooks.charges import OWN_NAMES
from pipefix.measurement.experiments import FLOOR, SAMPLES
from pipefix.measurement.measurement import Measurement
from pipefix.vocabulary.gain import FEWEST_FOR_INTERVAL, Gain, MeasuredGain, NotTried, figure, surely_above
from pipefix.vocabulary.quantity import Interval, core_count, percent, percent_between, seconds, times, times_between
from pipefix.vocabulary.shards import GIVE_PARTS
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

ShareOf = Callable[[Stage], Interval]

CLOSURE_LIMIT = 0.02
UNATTRIBUTED_LIMIT = 0.05
NOTICEABLE = 1.1
STARVED = 0.15
WAITING = 0.5
"""A stage that neither computes nor queues for a CPU in this part of its time is called waiting."""
ALONE = ", of the input side alone"
"""Said of a verdict where nothing consumed the batches."""
NOTICEABLE_GAIN = 1.02
NEXT_TO_NOTHING = 0.005
"""A share below this reads as none."""
WIDE = 1.25
"""The upper end of an arm's interval over the lower: wider, and more blocks may still bring both evidences together."""
CUT_IT = "Moved into a method or a function of the dataset's file it would have a name, and an arm of its own."
SEE_IT = "What runs meanwhile is seen in a trace: --trace FILE."


def verdict(measurement: Measurement, diagnosis: Diagnosis, ranking: Ranking, doubt: Doubt | None, share_of: ShareOf) -> str:
    kind = diagnosis.verdict.kind
    if ranking.sampler and ranking.stage is None:
        return _sampler(measurement, diagnosis, doubt)
    if kind == "input-bound" and ranking.stage is not None:
        return _input_bound(measurement, diagnosis, ranking.stage, share_of(ranking.stage))
    if kind == "step-bound":
        return _step_bound(measurement, diagnosis, share_of(Stage.STEP))
    if kind == "balanced":
        return _balanced(diagnosis, ranking, share_of, "Balanced" if measurement.has_consumer else f"Balanced{ALONE}")
    if doubt is not None and ranking.stage is not None:
        return _doubted(measurement, diagnosis, ranking.stage, doubt, share_of)
    if ranking.uncut and ranking.stage is not None:
        return _uncut(measurement, diagnosis, ranking.stage, share_of)
    return f"{_left_open(diagnosis, ranking, share_of)} {_longer(measurement)}"


def _line_among(ops: Sequence[OpCost], line: str | None) -> str | None:
    """The busiest line of the user's own code where one of a stage's operations stands in it."""
    place = line.partition(" at ")[2] if line is not None else ""
    return line if any(op.name.endswith(f" at {place}") for op in ops) else None


def _input_bound(measurement: Measurement, diagnosis: Diagnosis, stage: Stage, share: Interval) -> str:
    cost = diagnosis.stages[stage]
    top = next((op.name for op in cost.ops if op.wall_s > 0.5 * cost.wall.value), None)
    if top is not None:
        top = busiest_line(measurement.own_lines, "" if top in OWN_NAMES else top) or top
    elif stage is Stage.COLLATE:
        top = busiest_line(measurement.collate_lines)
    else:
        top = _line_among(cost.ops, busiest_line(measurement.own_lines))
    operation = top or ("handing batches over to the training process" if stage is Stage.IPC else None)
    named = f"{stage} ({operation})" if operation else str(stage)
    waiting = cost.waiting is not None and cost.waiting > WAITING * cost.wall.value
    manner = ", mostly waiting rather than computing" if waiting else ""
    kind = "Input-bound" if measurement.has_consumer else f"Input-bound{ALONE}"
    border = diagnosis.stations.border if stage is Stage.IPC else None
    if border is not None and border.value > share.value * diagnosis.sample.value:
        part = percent(min(1.0, border.value / diagnosis.sample.value))
        text = f"{kind}: {named} takes {part} of the time to deliver a sample even where batches are ready"
    elif share.value < NEXT_TO_NOTHING:
        text = f"{kind}: {named} limits, though it runs beside other stages{manner}"
    else:
        text = f"{kind}: {named} takes {_span(share, diagnosis)} of the time to deliver a sample{manner}"
    text += _if_free(measurement, cost.gain)
    samples = diagnosis.arms.get(SAMPLES.name)
    if diagnosis.verdict.by_arms and stage in IN_SAMPLE and not isinstance(cost.gain, MeasuredGain) and samples is not None:
        text += _if_free(measurement, MeasuredGain(samples, len(measurement.of(SAMPLES.name))), "if whole samples were")
    if not measurement.has_consumer:
        text += ". Nothing took the batches, so nobody knows yet whether training waits for them"
    if diagnosis.fed is not None and measurement.workers and stage is not Stage.TRANSFER:
        text += f". The step waits {percent(1 - diagnosis.fed)} of the time"
    return text + "."


def _sampler(measurement: Measurement, diagnosis: Diagnosis, doubt: Doubt | None) -> str:
    """It runs in the training process, and is no stage."""
    part = percent(min(1.0, diagnosis.sampler.value / diagnosis.sample.value))
    clocks = f"Inconclusive: by the clocks the sampler takes {part} of the time"
    if doubt is not None and doubt.gain is not None:
        does = "does without it" if doubt.kind is DoubtKind.LITTLE_GAIN else "leaves it as it is"
        return f"{clocks}, but {doubt.arm}, which {does}, delivers {figure(doubt.gain)}. {_settles(measurement, doubt.gain)}"
    if doubt is not None:
        too_little = "no arm ran without it" if doubt.kind is DoubtKind.NOT_TRIED else "only one block was measured"
        return f"{clocks}, but {too_little}: the time was too short. {_longer(measurement)}"
    kind = "Input-bound" if measurement.has_consumer else f"Input-bound{ALONE}"
    text = f"{kind}: the sampler takes {part} of the time, {seconds(diagnosis.sampler.value)} a sample"
    text += _if_free(measurement, diagnosis.sampler_gain or NotTried())
    advice = "have it compute an epoch's order in one call, or ahead"
    return f"{text}. It runs in the training process, where no worker helps: {advice}."


def _if_free(measurement: Measurement, gain: Gain, what: str = "if it were") -> str:
    """What doing without the named stage, the sampler or whole samples brings; nothing where that is not sure."""
    if not surely_above(gain, NOTICEABLE_GAIN):
        return ""
    gained = "throughput would be" if measurement.has_consumer else "the input side would deliver"
    return f"; {what} free, {gained} {figure(gain)}"


def _step_bound(measurement: Measurement, diagnosis: Diagnosis, share: Interval) -> str:
    ratio = diagnosis.stations.supply_over_main
    step = seconds(diagnosis.stages[Stage.STEP].wall.value * measurement.settings.samples_a_batch)
    text = f"Step-bound: the step takes {_span(share, diagnosis)} of the time, {step} a batch"
    if ratio is not None:
        could = times_between(ratio.inverted()) if diagnosis.verdict.blocks >= FEWEST_FOR_INTERVAL else times(1 / ratio.value)
        text += f", and the loader could deliver {could} what it uses"
    free = free_input(measurement, diagnosis)
    best = f": free input would gain at most {times(max(1.0, free.high))}" if free is not None else ""
    if (free.low if free is not None else 1.0 if measurement.workers else 1 / share.high) <= NOTICEABLE:
        return f"{text}. Work on the model, not the data{best}."
    # In a row with it, several smaller stages together may take as long.
    return f"{text}. It is the largest part, and not the only one worth work{best or ': making batches takes the rest'}."


def free_input(measurement: Measurement, diagnosis: Diagnosis) -> Interval | None:
    """What it gains if neither samples nor batches take any time, as far as that was tried; None where it was not.

    Where workers collate, and the step limits, whole samples are nearly all of it.
    """
    tried = [arm.name for arm in ((FLOOR, SAMPLES) if measurement.workers else (FLOOR,))]
    arm = next((arm for arm in tried if len(measurement.of(arm)) >= FEWEST_FOR_INTERVAL), None)
    return diagnosis.arms.get(arm) if arm is not None else None


def _balanced(diagnosis: Diagnosis, ranking: Ranking, share_of: ShareOf, kind: str) -> str:
    if ranking.stage is None:
        ratio = diagnosis.stations.supply_over_main
        known = ratio is not None and diagnosis.verdict.blocks >= FEWEST_FOR_INTERVAL
        spread = f" (the loader's time over the training process's: {ratio.low:.2f}-{ratio.high:.2f})" if ratio and known else ""
        second_name = "the step" if ranking.second is Stage.STEP else "taking batches over"
        return f"{kind}: the loader and {second_name} keep pace with each other{spread}; a gain needs both."
    assert ranking.second is not None
    first, second = (_span(share_of(stage), diagnosis) for stage in (ranking.stage, ranking.second))
    takes = f"{ranking.stage} takes {first} of the time and {ranking.second} {second}"
    return f"{kind}: no single stage dominates; {takes}. A gain needs both."


def _doubted(measurement: Measurement, diagnosis: Diagnosis, stage: Stage, doubt: Doubt, share_of: ShareOf) -> str:
    """Clocks and arms side by side where they do not agree, and what would settle it."""
    takes = f"by the clocks {stage} takes {_span(share_of(stage), diagnosis)} of the time"
    if doubt.kind is DoubtKind.KEPT and doubt.stage is not None:
        first, again = map(seconds, measurement.kept_by_library[doubt.stage])
        took = f"{first} of CPU time a sample when samples were first read and {again} when the same ones were read again"
        keeps = "something keeps what it unpacked, at least for so many samples as a probe reads."
        return f"Inconclusive: {takes}, but {doubt.stage} took {took}: {keeps}"
    gain = doubt.gain
    gains = figure(gain) if gain is not None else ""
    if doubt.kind is DoubtKind.RIVAL:
        arms = f"the replayed arms to {doubt.stage} (removing it gains {gains})"
        return f"Inconclusive: the clocks point to {stage}, but {arms}. {_settles(measurement, gain)}"
    if doubt.kind is DoubtKind.OWN_CODE:
        part = percent(share_of(stage).value * min(1.0, doubt.own / (diagnosis.stages[stage].wall.value or 1.0)))
        between = f"between calls that pipefix knows{_mostly(measurement)}"
        return f"Inconclusive: {part} of the time is the dataset's own code {between}. {CUT_IT}"
    if doubt.kind is DoubtKind.NOT_TRIED:
        return f"Inconclusive: {takes}, but no arm ran without it: the time was too short. {_longer(measurement)}"
    if doubt.kind is DoubtKind.ONE_BLOCK:
        block = "of the arm without it was measured" if gain is not None else f"was measured, and no arm can run without {stage}"
        return f"Inconclusive: {takes}, but only one block {block}. {_longer(measurement)}"
    if doubt.kind is DoubtKind.NO_ROOM:
        return f"Inconclusive: {takes}, but {doubt.arm}, which leaves it as it is, delivers {gains}. {SEE_IT}"
    instead = doubt.arm or "its own arm"
    return f"Inconclusive: {takes}, but {instead}, which does without it, delivers {gains}. {_settles(measurement, gain)}"


def _mostly(measurement: Measurement) -> str:
    line = busiest_line(measurement.own_lines)
    part = measurement.own_lines[line] / sum(measurement.own_lines.values()) if line is not None else 0.0
    return f", {percent(part)} of it in {line}" if line is not None else ""


def _settles(measurement: Measurement, gain: MeasuredGain | None) -> str:
    """More blocks while they may still bring both evidences together; else a look at what really runs."""
    if gain is None or gain.blocks < FEWEST_FOR_INTERVAL or gain.interval.high / gain.interval.low > WIDE:
        return _longer(measurement)
    return SEE_IT


def contradicted(measurement: Measurement, statement: str) -> str:
    """``statement``: what the verdict would have claimed, and what speaks against it."""
    return f"Inconclusive: {statement}. {_longer(measurement)}"


def _longer(measurement: Measurement) -> str:
    return f"More blocks would settle it: --budget {longer_budget(measurement)}."


def longer_budget(measurement: Measurement) -> int:
    """Seconds."""
    return max(60, int(measurement.seconds * 3))


def _uncut(measurement: Measurement, diagnosis: Diagnosis, stage: Stage, share_of: ShareOf) -> str:
    part = percent(diagnosis.unattributed / diagnosis.sample.value)
    rest = f"{part} of the time is the dataset's own code before anything is read, which no hook times{_mostly(measurement)}"
    most = f"of what could be cut, {stage} takes most ({_span(share_of(stage), diagnosis)})"
    return f"Inconclusive: {rest}; {most}. {CUT_IT}"


def _left_open(diagnosis: Diagnosis, ranking: Ranking, share_of: ShareOf) -> str:
    if ranking.stage is None or ranking.second is None:
        return "Inconclusive: too few batches were measured to tell the stages apart."
    ratio, sides = diagnosis.stations.supply_over_main, ranking.lead is not None and ranking.second in (Stage.STEP, Stage.IPC)
    if sides and ratio is not None and ratio.low < 1.1 and ratio.high > 1 / 1.1:
        few = diagnosis.verdict.blocks < FEWEST_FOR_INTERVAL
        once, between = ("in one block, ", "") if few else ("", f" ({ratio.low:.2f}-{ratio.high:.2f})")
        takes = f"{once}the loader takes {ratio.value:.2f} times{between} as long as the training process"
        return f"Inconclusive: {takes}, too close to tell which one limits."
    pair = " and ".join(_beside(diagnosis, stage, share_of) for stage in (ranking.stage, ranking.second))
    return f"Inconclusive: {pair} are too close to tell which one limits."


def _beside(diagnosis: Diagnosis, stage: Stage, share_of: ShareOf) -> str:
    """A stage of two that are compared, by its share of the time; handing over by what batches that are ready take."""
    border = diagnosis.stations.border if stage is Stage.IPC else None
    if border is not None:
        between = f", {seconds(border.low)} to {seconds(border.high)}" if diagnosis.verdict.blocks >= FEWEST_FOR_INTERVAL else ""
        return f"{stage} (batches that are ready take {seconds(border.value)} a sample{between})"
    return f"{stage} ({_span(share_of(stage), diagnosis)})"


def caveats(measurement: Measurement, diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Every doubt that applies, as (id, sentence)."""
    rest = max(0.0, diagnosis.unattributed - diagnosis.sampler.value) / diagnosis.sample.value
    workers = measurement.idle_workers + measurement.workers
    longer = diagnosis.verdict.kind == "inconclusive" and "--budget" in diagnosis.verdict.sentence
    stages, anew = measurement.kept_by_dataset, measurement.workers and not measurement.settings.persistent_workers
    kept = stages and f"The dataset keeps what it has read: {' and '.join(stages)} ran only when a sample was first asked for."
    doubts = [
        ("interrupted", measurement.partial, "The probe was interrupted; the figures are what was known by then."),
        ("idle-workers", measurement.idle_workers,
         (f"{measurement.idle_workers} of {workers} workers gave no sample: their part of the stream is empty. The figures are for "
          "those that did; a stream needs at least as many shards as workers.")),
        ("whole-stream-each", measurement.whole_stream_each and measurement.workers > 1,
         (f"Each of {workers} workers goes through the whole stream, so that every sample comes {workers} times an epoch: rates "
          f"count the copies. {GIVE_PARTS}")),
        ("own-cache", kept and not anew, f"{kept} Every figure is of later epochs; the first one takes longer."),
        ("own-cache-lost", kept and anew,
         (f"{kept} Workers that start anew each epoch have kept nothing: every figure is of samples that one has read before, and "
          "an epoch takes longer. DataLoader(..., persistent_workers=True) keeps it.")),
        ("inconclusive", longer, f"A longer run would narrow the intervals: --budget {longer_budget(measurement)}."),
        ("closure", abs(diagnosis.closure) > CLOSURE_LIMIT,
         (f"The stages and the rest add up to {percent(1 + diagnosis.closure)} of the measured time a sample; the machine was "
          "noisy or stages overlap.")),
        ("unattributed", rest > UNATTRIBUTED_LIMIT,
         f"{percent(rest)} of the time belongs to no stage: code that no hook times, or workers waiting for each other."),
        ("starved", diagnosis.starved > STARVED,
         (f"For {percent(diagnosis.starved)} of the time the pipeline was ready to run and had no CPU: "
          f"{_takes_cpus(measurement)}.")),
        ("pace", (slower := slower_by(measurement)) > 1,
         (f"The same work took {times(slower)} the CPU time in one part of the probe that it took in another: the cores' pace "
          "changed (heat, a power limit, others on the same cores). Arms took turns, so that gains and shares hold; rates and "
          "seconds lie between the two.")),
        ("no-consumer", not measurement.has_consumer and not measurement.why_none,
         "Without a training step this is the loader alone; --step-ms MS or --target-rate N adds a consumer."),
        ("model-left-out", measurement.why_none,
         (f"The file's model is not the consumer, because a training step made around it failed: {measurement.why_none}. This is "
          "the loader alone; train_step(batch) in the file, --step-ms MS or --target-rate N adds a consumer.")),
        ("slowdown", diagnosis.slowdown > NOTICEABLE,
         (f"Clocks at the hooks slowed the timed arm by {percent(diagnosis.slowdown - 1)}; shares of cheap operations are upper "
          "bounds.")),
        *(("not-recorded", True, f"Results of {op} could not be recorded, so it was not replaced in any arm: {why}.")
          for op, why in sorted(measurement.refused.items())),
        ("no-hooks", measurement.left_out,
         (f"pipefix has no hooks for {' and '.join(measurement.left_out)}: calls of it are told as your own code is, by their "
          "lines.")),
        ("mixed", measurement.mixed,
         (f"{', '.join(measurement.mixed)} {'does' if len(measurement.mixed) == 1 else 'do'} the work of several stages; "
          "the library calls inside are told apart, the rest is own code.")),
    ]  # fmt: skip
    return [(name, sentence) for name, applies, sentence in doubts if applies]


def _takes_cpus(measurement: Measurement) -> str:
    others = "other programs on the machine"
    if measurement.workers < measurement.cores:
        return f"{others}, or more threads than cores"
    return f"too many workers for {core_count(measurement.cores)}, or {others}"


def _span(share: Interval, diagnosis: Diagnosis) -> str:
    """One block tells a share, and no interval."""
    return percent_between(share) if diagnosis.verdict.blocks >= FEWEST_FOR_INTERVAL else percent(share.value)
