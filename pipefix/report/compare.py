"""Two runs of the same pipeline side by side: what changed, by how much, and whether that is more than noise."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from pipefix.report import wording
from pipefix.report.columns import Paint, for_terminal
from pipefix.report.comparable import changed_settings, doubts, unlike
from pipefix.report.machine_part import MachinePart, machine_part
from pipefix.report.runfile import Run, StageFigures
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.quantity import Interval


class StageChange(msgspec.Struct, frozen=True, kw_only=True):
    """One stage in both runs. A figure is None where that run has none."""

    stage: str
    before_s: Interval | None = None
    """Seconds a sample, on the clock."""
    after_s: Interval | None = None
    ratio: Interval | None = None
    """After over before: below 1 the stage got faster."""
    before_share: float | None = None
    after_share: float | None = None

    @property
    def settled(self) -> bool:
        """True where the interval of the ratio leaves no change out."""
        return self.ratio is not None and not self.ratio.low <= 1.0 <= self.ratio.high


class FigureChange(msgspec.Struct, frozen=True, kw_only=True):
    """A figure beside rate and stages, as both runs tell it."""

    what: str
    before: str
    after: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    before: Run
    after: Run
    ratio: Interval
    """Delivered throughput after over before: above 1 it got faster."""
    machine: MachinePart = MachinePart()
    """What of it is the machine's."""
    stages: list[StageChange] = []
    beside: list[FigureChange] = []
    doubts: list[str] = []
    """Why the two may not be alike: what was forced, interrupted or set up differently."""

    @property
    def settled(self) -> bool:
        """True where the interval of the ratio, as it would be on one machine, leaves no change out."""
        own = self.own
        return self.machine.told and all(not one.low <= 1.0 <= one.high for one in (self.ratio, own))

    def __str__(self) -> str:
        return "\n".join(lines(self))

    @property
    def own(self) -> Interval:
        """The ratio with the machine's part taken out."""
        return self.machine.taken_out(self.ratio)

    @property
    def sentence(self) -> str:
        before, after = _rates(self.before), _rates(self.after)
        unit = self.after.throughput.unit if self.after.throughput is not None else "samples/s"
        rates = f"{wording.number(before.value)} -> {wording.rate(after.value, unit)}"
        if self.settled:
            said = f"Delivered {wording.times_between(self.ratio)}: {rates}"
        else:
            noise = "the machine's" if self.machine.sentence else "noise"
            said = f"No change that these runs can tell from {noise}: delivered {wording.times_between(self.ratio)}, {rates}"
        change = _greatest(self.stages)
        return f"{said}; {change}." if change else f"{said}."


def compare(before: Run, after: Run, *, force: bool = False) -> Comparison:
    """What changed from ``before`` to ``after``. Runs that are not alike are refused, unless forced: then the doubts say so."""
    for name, run in (("first", before), ("second", after)):
        figures = wording.usable(run.throughput.delivered) if run.throughput is not None else None
        if figures is None or figures.value <= 0:
            raise BadUsage(
                f"The {name} run, of {run.target or 'an unnamed target'}, holds no throughput: there is nothing to compare.",
                advice="Make a fresh run file, and let the probe finish: pipefix probe TARGET --out run.json",
            )
    reasons = unlike(before, after)
    if reasons and not force:
        raise BadUsage(
            f"These two runs cannot be compared: {'; '.join(reasons)}.", advice="To compare them all the same, add --force."
        )
    found = Comparison(
        before=before,
        after=after,
        ratio=ratio(_rates(after), _rates(before)),
        machine=machine_part(before, after),
        stages=_stages(before, after),
        beside=_beside(before, after),
    )
    said = [f"Forced: {one}." for one in reasons] + _of_the_machine(found) + doubts(before, after)
    return msgspec.structs.replace(found, doubts=said)


def _of_the_machine(found: Comparison) -> list[str]:
    part = found.machine
    if not part.sentence:
        return []
    rest = f"Without that the second run delivers {wording.times_between(found.own)} of the first."
    return [f"{part.sentence} {rest if part.told else 'What that cost cannot be told: repeat the run.'}"]


def _beside(before: Run, after: Run) -> list[FigureChange]:
    """Figures beside rate and stages that at least one of the two tells."""
    pairs = zip(_told_beside(before), _told_beside(after), strict=True)
    return [FigureChange(what=what, before=old, after=new) for (what, old), (_, new) in pairs if {old, new} != {wording.UNKNOWN}]


def _told_beside(run: Run) -> list[tuple[str, str]]:
    start, tail, tool, meanwhile = run.startup, run.tail, run.instrument, run.machine.get("while_measured", {})
    return [
        ("consumer fed", wording.percent(run.waits.fed if run.waits is not None else None)),
        ("GPU busy", wording.percent(meanwhile.get("nvml_utilisation"))),
        ("first batch", wording.seconds(start.first_batch_s if start is not None else None)),
        ("slowest 1 % of samples", wording.seconds(tail.p99_s if tail is not None else None)),
        ("peak memory", wording.size(tool.peak_rss_bytes if tool is not None else None)),
    ]


def ratio(above: Interval, below: Interval) -> Interval:
    """The quotient of two figures whose errors are independent: relative half-widths add in quadrature, on a log scale."""
    value = above.value / below.value
    down = math.hypot(_log(above.value, above.low), _log(below.high, below.value))
    up = math.hypot(_log(above.high, above.value), _log(below.value, below.low))
    return Interval(value, value * math.exp(-down), value * math.exp(up))


_LARGEST_LOG = 300.0
"""Beyond it an interval has no end that could be told."""


def _log(above: float, below: float) -> float:
    if min(above, below) <= 0 or not math.isfinite(above) or not math.isfinite(below):
        return math.inf
    return min(max(0.0, math.log(above) - math.log(below)), _LARGEST_LOG)


def regressed(comparison: Comparison, limit: float) -> bool:
    """True where the second run is slower by more than ``limit`` (0.05 for 5 %) and the loss is neither noise nor the machine's.

    The estimate must lie beyond the limit and the whole interval below 1, with the machine's part taken out as well: a gate that
    fires on noise is switched off within a week.
    """
    both = (comparison.ratio, comparison.own)
    return comparison.machine.told and all(one.value < 1.0 - limit and one.high < 1.0 for one in both)


def gate_sentence(comparison: Comparison, limit: float) -> str:
    """What the gate found, for whoever reads the log of the job that it stopped."""
    found = wording.times_between(comparison.ratio)
    allowed = f"a loss of at most {wording.percent(limit)} was allowed"
    if regressed(comparison, limit):
        return f"Regression: the second run delivers {found} of the first; {allowed}."
    if comparison.ratio.low < 1.0 - limit:
        settle = "Longer probes would settle it."
        if comparison.machine.sentence:
            settle = f"{comparison.machine.sentence} Repeat the run when the machine does nothing else."
        return f"No regression that is certain: the second run delivers {found} of the first; {allowed}. {settle}"
    return f"No regression: the second run delivers {found} of the first; {allowed}."


def as_dict(comparison: Comparison) -> dict[str, object]:
    """What changed, for JSON; the runs themselves are named, not repeated."""
    return {
        "sentence": comparison.sentence,
        "ratio": comparison.ratio,
        "settled": comparison.settled,
        "machine": {**msgspec.structs.asdict(comparison.machine), "ratio_without": comparison.own},
        "stages": [{**msgspec.structs.asdict(change), "settled": change.settled} for change in comparison.stages],
        "beside": comparison.beside,
        "before": _named(comparison.before),
        "after": _named(comparison.after),
        "changed_settings": changed_settings(comparison.before, comparison.after),
        "doubts": comparison.doubts,
    }


def _named(run: Run) -> dict[str, object]:
    return {"target": run.target, "created": run.created, "delivered": _rates(run)}


@for_terminal
def lines(comparison: Comparison, paint: Paint) -> Iterator[str]:
    """The comparison for the terminal."""
    good = ("green",) if comparison.ratio.value >= 1 else ("red",)
    yield from paint.paragraph(comparison.sentence, "bold", *(good if comparison.settled else ("yellow",)))
    yield ""
    for name, run in (("before", comparison.before), ("after", comparison.after)):
        verdict = run.verdict.sentence if run.verdict is not None else "no verdict"
        yield from paint.labelled(f"  {name}", ", ".join(part for part in (run.target, run.created) if part), "dim", indent=10)
        yield from paint.labelled("", verdict, indent=10)
    rows = [("stage", "before", "after", "after/before", "share"), *map(row, comparison.stages)]
    if len(rows) > 1:
        yield ""
        yield from paint.table(rows, "lrrrr")
        if any(change.ratio is not None and not change.settled for change in comparison.stages):
            yield paint.ink("  ~ within noise", "dim")
    if comparison.beside:
        yield ""
        yield from paint.table([("", "before", "after"), *((one.what, one.before, one.after) for one in comparison.beside)], "lrr")
    changed = changed_settings(comparison.before, comparison.after)
    for title, notes in (("Changed settings", changed), ("Doubts", comparison.doubts)):
        if notes:
            yield ""
            yield paint.ink(title, "bold")
        for note in notes:
            yield from paint.paragraph(note, first="  - ")


def row(change: StageChange) -> tuple[str, ...]:
    """Stage, seconds a sample before and after, their ratio, and the shares of the delivered time."""
    ratio_ = wording.times_between(change.ratio) if change.ratio is not None else "-"
    noise = "" if change.settled or change.ratio is None else " ~"
    shares = [wording.percent(share) if wording.known(share) else "-" for share in (change.before_share, change.after_share)]
    figures = [wording.seconds(one.value) if one is not None else "-" for one in (change.before_s, change.after_s)]
    return change.stage, *figures, ratio_ + noise, " -> ".join(shares)


def _rates(run: Run) -> Interval:
    assert run.throughput is not None
    return run.throughput.delivered


def _stages(before: Run, after: Run) -> list[StageChange]:
    earlier = {stage.stage: stage for stage in before.stages}
    later = {stage.stage: stage for stage in after.stages}
    changes = [_change(name, earlier.get(name), later.get(name)) for name in {**earlier, **later}]
    return [change for change in changes if change.before_s is not None or change.after_s is not None]


def _change(name: str, before: StageFigures | None, after: StageFigures | None) -> StageChange:
    old = wording.usable(before.wall_s) if before is not None else None
    new = wording.usable(after.wall_s) if after is not None else None
    both = ratio(new, old) if old is not None and new is not None and old.value > 0 and new.value > 0 else None
    return StageChange(
        stage=name,
        before_s=old,
        after_s=new,
        ratio=both,
        before_share=before.share if before is not None else None,
        after_share=after.share if after is not None else None,
    )


def _greatest(changes: list[StageChange]) -> str:
    """The stage whose seconds changed most, where that is more than noise."""
    sure = [(change.stage, change.before_s, change.after_s) for change in changes if change.settled]
    moved = [(name, old.value, new.value) for name, old, new in sure if old is not None and new is not None]
    if not moved:
        return ""
    name, old, new = max(moved, key=lambda one: abs(one[1] - one[2]))
    first, second = wording.seconds(old), wording.seconds(new)
    if first.split()[-1] == second.split()[-1]:
        first = first.split()[0]
    return f"{name} {first} -> {second}/sample"
