"""Compares two runs of one pipeline: ratio of throughput (above 1: faster) and of each stage's seconds (below 1: faster)."""

from __future__ import annotations

import html
import math
from collections.abc import Callable

import msgspec

from pipefix.report import descriptions
from pipefix.report.comparable import MachinePart, changed_settings, doubts, machine_part, unlike
from pipefix.report.document import Bar, Block, Document, Field, Paragraph, Table, chart, field, filled, points
from pipefix.report.runfile import Run, StageFigures, encode
from pipefix.report.shown import Shown
from pipefix.report.stage_table import side_by_side
from pipefix.vocabulary import quantity
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.printable import printable
from pipefix.vocabulary.version import VERSION

HEADS = ["stage", "after/before", "a sample", "share"]


class StageChange(msgspec.Struct, frozen=True, kw_only=True):
    """One stage in both runs. A figure is None where that run has none."""

    stage: str
    before_s: quantity.Interval | None = None
    """Seconds a sample, on the clock."""
    after_s: quantity.Interval | None = None
    ratio: quantity.Interval | None = None
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


class Comparison(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """Two runs held against each other: the ratio of what they delivered, each stage before and after, and doubts."""

    before: Run
    after: Run
    ratio: quantity.Interval
    """Delivered throughput after over before: above 1 it got faster."""
    machine: MachinePart = MachinePart()
    stages: list[StageChange] = []
    beside: list[FigureChange] = []
    doubts: list[str] = []
    """Why the two may not be alike: what was forced, interrupted or set up differently."""
    max_regression: float | None = None
    """The loss that is allowed, as a share: 0.05 for 5 %."""

    @property
    def settled(self) -> bool:
        """True where the interval of the ratio, as it would be on one machine, leaves no change out. More neighbours, whatever they
        cost, made nothing faster."""
        outside = all(not ratio.low <= 1.0 <= ratio.high for ratio in (self.ratio, self.own))
        return outside and (self.machine.told or self.ratio.low > 1.0)

    @property
    def regressed(self) -> bool:
        """True where the second run is slower by more than was allowed, and the loss is neither noise nor the machine's.

        The estimate must lie beyond the limit and the whole interval below 1, with the machine's part taken out as well: a gate
        that fires on noise is switched off within a week.
        """
        if self.max_regression is None or not self.machine.told:
            return False
        return all(ratio.value < 1.0 - self.max_regression and ratio.high < 1.0 for ratio in (self.ratio, self.own))

    @property
    def gate(self) -> str | None:
        """What the gate says, for whoever reads the log of the job that it stopped; None where no limit was given."""
        if self.max_regression is None:
            return None
        ratio = quantity.times_between(self.ratio)
        allowed = f"a loss of at most {quantity.percent(self.max_regression)} was allowed"
        if self.regressed:
            return f"Regression: the second run delivers {ratio} of the first; {allowed}."
        if self.ratio.low < 1.0 - self.max_regression:
            settle = "Longer probes would settle it."
            if self.machine.sentence:
                settle = f"{self.machine.sentence} Repeat the run when the machine does nothing else."
            return f"No regression that is certain: the second run delivers {ratio} of the first; {allowed}. {settle}"
        return f"No regression: the second run delivers {ratio} of the first; {allowed}."

    def document(self, *, full: bool = False) -> Document:
        """``full``: with what the gate says, which the command line tells apart."""
        kind = "warn" if not self.settled else "good" if self.ratio.value >= 1 else "bad"
        card = [field("RESULT", self.sentence, f"strong {kind}")]
        if full and self.gate is not None:
            kind = "bad" if self.regressed else kind
            card.append(field("GATE", self.gate))
        beside = Table(["figure", "before", "after"], _beside_rows(self), "lrr", caption="Beside the rate")
        card += [_told("BEFORE", self.before), _told("AFTER", self.after)]
        return Document(
            command="pipefix compare", target=self.after.target, kind=kind, card=card, tiles=list(_tiles(self)),
            version=VERSION, data=encode(self.after),
            sections=filled(
                ("Stages side by side", side_by_side(self.before, self.after), "page"),
                ("Seconds a sample, after over before", _by_stage(self), ""),
                ("Beside the rate", [beside] if beside.rows else [], ""),
                ("Changed settings", points(changed_settings(self.before, self.after)), ""),
                ("Doubts", points(self.doubts), ""),
            ),
        )  # fmt: skip

    def figures(self) -> dict[str, object]:
        """What changed; the runs themselves are named, not repeated."""
        return {
            "sentence": self.sentence, "ratio": self.ratio, "settled": self.settled, "regressed": self.regressed, "gate": self.gate,
            "machine": {**msgspec.structs.asdict(self.machine), "ratio_without": self.own},
            "stages": [{**msgspec.structs.asdict(change), "settled": change.settled} for change in self.stages],
            "beside": self.beside, "before": _named(self.before), "after": _named(self.after),
            "changed_settings": changed_settings(self.before, self.after), "doubts": self.doubts,
        }  # fmt: skip

    @property
    def own(self) -> quantity.Interval:
        """The ratio with the machine's part taken out."""
        return self.machine.taken_out(self.ratio)

    @property
    def sentence(self) -> str:
        before, after = _rates(self.before), _rates(self.after)
        unit = self.after.throughput.unit if self.after.throughput is not None else "samples/s"
        rates = f"{quantity.number(before.value)} -> {quantity.rate(after.value, unit)}"
        if self.settled:
            delivered = f"Delivered {quantity.times_between(self.ratio)}: {rates}"
        else:
            noise = "the machine's" if self.machine.sentence else "noise"
            too_few = not math.isfinite(self.ratio.low) and not math.isfinite(self.ratio.high)
            told = "Probed for too short to tell a change from" if too_few else "No change that these runs can tell from"
            delivered = f"{told} {noise}: delivered {quantity.times_between(self.ratio)}, {rates}"
        change = _greatest(self.stages)
        return f"{delivered}; {change}." if change else f"{delivered}."


def compare(before: Run, after: Run, *, force: bool = False, max_regression: float | None = None) -> Comparison:
    """What changed from ``before`` to ``after``. Runs that are not alike are refused, unless forced: then the doubts say so."""
    for name, run in (("first", before), ("second", after)):
        figures = quantity.usable(run.throughput.delivered) if run.throughput is not None else None
        if figures is None or figures.value <= 0:
            again = "Make a fresh run file, and let the probe finish: pipefix probe TARGET --out run.json"
            if run.program is not None:
                again = "Waits of a loop are no rate of its loader, which this measures in the program: pipefix run --probe PROGRAM"
            what = f"The {name} run, of {run.target or 'an unnamed target'}"
            raise BadUsage(f"{what}, holds no throughput: there is nothing to compare.", advice=again)
    reasons = unlike(before, after)
    if reasons and not force:
        why = f"These two runs cannot be compared: {'; '.join(reasons)}."
        raise BadUsage(why, advice="To compare them all the same, add --force (in Python force=True).")
    comparison = Comparison(
        before=before, after=after, ratio=ratio(_rates(after), _rates(before)), machine=machine_part(before, after),
        stages=_stages(before, after), beside=_beside(before, after), max_regression=max_regression,
    )  # fmt: skip
    reasons_told, part = [f"Forced: {reason}." for reason in reasons], comparison.machine
    if part.sentence:
        rest = f"Without that the second run delivers {quantity.times_between(comparison.own)} of the first."
        reasons_told.append(f"{part.sentence} {rest if part.told else 'What that cost cannot be told: repeat the run.'}")
    return msgspec.structs.replace(comparison, doubts=reasons_told + doubts(before, after))


def _beside(before: Run, after: Run) -> list[FigureChange]:
    """Figures beside rate and stages that at least one of the two tells."""
    pairs = zip(_told_beside(before), _told_beside(after), strict=True)
    return [FigureChange(what=name, before=old, after=new) for (name, old), (_, new) in pairs if {old, new} != {quantity.UNKNOWN}]


def _told_beside(run: Run) -> list[tuple[str, str]]:
    start, tail, tool, meanwhile = run.startup, run.tail, run.instrument, descriptions.while_measured(run)
    return [
        ("consumer fed", quantity.percent(run.waits.fed if run.waits is not None else None)),
        ("GPU busy", quantity.percent(meanwhile.get("nvml_utilisation"))),
        ("first batch", quantity.seconds(start.first_batch_s if start is not None else None)),
        ("first batch of a later epoch", quantity.seconds(start.epoch_restart_s if start is not None else None)),
        ("a sample, median", quantity.seconds(tail.p50_s if tail is not None else None)),
        ("a sample, 99th percentile", quantity.seconds(tail.p99_s if tail is not None else None)),
        ("peak memory", quantity.size(tool.peak_rss_bytes if tool is not None else None)),
    ]


def ratio(above: quantity.Interval, below: quantity.Interval) -> quantity.Interval:
    """The quotient of two figures whose errors are independent: relative half-widths add in quadrature, on a log scale."""
    value = above.value / below.value
    down = math.hypot(_log(above.value, above.low), _log(below.high, below.value))
    up = math.hypot(_log(above.high, above.value), _log(below.value, below.low))
    low = value * math.exp(-down) if math.isfinite(down) else -math.inf
    return quantity.Interval(value, low, value * math.exp(up))


def _log(above: float, below: float) -> float:
    if min(above, below) <= 0 or not math.isfinite(above) or not math.isfinite(below):
        return math.inf
    return min(max(0.0, math.log(above) - math.log(below)), 300.0)  # beyond it an interval has no end that could be told


def _named(run: Run) -> dict[str, object]:
    return {"target": run.target, "created": run.created, "delivered": _rates(run)}


def _rates(run: Run) -> quantity.Interval:
    assert run.throughput is not None
    return run.throughput.delivered


def _stages(before: Run, after: Run) -> list[StageChange]:
    earlier, later = ({stage.stage: stage for stage in run.stages} for run in (before, after))
    changes = [_change(name, earlier.get(name), later.get(name)) for name in {**earlier, **later}]
    return [change for change in changes if change.before_s is not None or change.after_s is not None]


def _change(name: str, before: StageFigures | None, after: StageFigures | None) -> StageChange:
    old = quantity.usable(before.wall_s) if before is not None else None
    new = quantity.usable(after.wall_s) if after is not None else None
    both = ratio(new, old) if old is not None and new is not None and old.value > 0 and new.value > 0 else None
    return StageChange(
        stage=name, before_s=old, after_s=new, ratio=both, before_share=before.share if before is not None else None,
        after_share=after.share if after is not None else None,
    )  # fmt: skip


def _greatest(changes: list[StageChange]) -> str:
    """The stage whose seconds changed most, where that is more than noise."""
    sure = [(change.stage, change.before_s, change.after_s) for change in changes if change.settled]
    moved = [(name, old.value, new.value) for name, old, new in sure if old is not None and new is not None]
    if not moved:
        return ""
    name, old, new = max(moved, key=lambda change: abs(change[1] - change[2]))
    first, second = quantity.seconds(old), quantity.seconds(new)
    if first.split()[-1] == second.split()[-1]:
        first = first.split()[0]
    return f"{name} {first} -> {second}/sample"


def _beside_rows(comparison: Comparison) -> list[list[str]]:
    return [[change.what, change.before, change.after] for change in comparison.beside]


def _told(label: str, run: Run) -> Field:
    verdict = run.verdict.sentence if run.verdict is not None else "no verdict"
    return Field(label, [Paragraph(verdict), Paragraph(", ".join(part for part in (run.target, run.created) if part), "soft")])


def _tiles(comparison: Comparison) -> list[tuple[str, str]]:
    runs = {"before": comparison.before.throughput, "after": comparison.after.throughput}
    rates = [(label, quantity.rate_between(rate.delivered, rate.unit)) for label, rate in runs.items() if rate is not None]
    own = [("without the machine's part", quantity.times_between(comparison.own))] if comparison.machine.sentence else []
    return [*rates, ("after over before", quantity.times_between(comparison.ratio)), *own]


def _by_stage(comparison: Comparison) -> list[Block]:
    if not comparison.stages:
        return []
    bars = [
        Bar(cells=row(each), value=each.ratio or quantity.exactly(1.0), stage=each.stage, title=_word(each))
        for each in comparison.stages
    ]
    noise = any(change.ratio is not None and not change.settled for change in comparison.stages)
    return [chart(HEADS, bars, "lrrr", "Stages", ["share"], start=1.0), *([Paragraph("~ within noise", "soft")] if noise else [])]


def _word(change: StageChange) -> str:
    if change.ratio is None:
        return f"{change.stage}: in one of the two only"
    word = "within noise" if not change.settled else "slower" if change.ratio.value > 1 else "faster"
    return f"{change.stage}: {quantity.times_between(change.ratio)}, {word}"


def row(change: StageChange) -> list[str]:
    """Stage, the ratio of its seconds a sample, and before and after: these seconds, and its shares of the delivered time."""
    ratio = quantity.times_between(change.ratio) if change.ratio is not None else "-"
    noise = "" if change.settled or change.ratio is None else " ~"
    shares = [quantity.percent(share) if quantity.known(share) else "-" for share in (change.before_share, change.after_share)]
    clocks = [quantity.seconds(clock.value) if clock is not None else "-" for clock in (change.before_s, change.after_s)]
    return [change.stage, ratio + noise, " -> ".join(clocks), " -> ".join(shares)]


def markdown(comparison: Comparison) -> list[str]:
    """A heading, the gate's sentence, and tables that GitHub and GitLab draw."""
    lines = ["### pipefix compare", "", f"**{_cell(comparison.sentence)}**"]
    if comparison.gate is not None:
        lines += ["", _cell(comparison.gate)]
    lines += _markdown_table(HEADS, [row(change) for change in comparison.stages])
    lines += _markdown_table(["figure", "before", "after"], _beside_rows(comparison))
    listed = {"Changed settings": changed_settings(comparison.before, comparison.after), "Doubts": comparison.doubts}
    for title, notes in listed.items():
        if notes:
            lines += ["", f"{title}:", "", *(f"- {_cell(note)}" for note in notes)]
    return lines


def _markdown_table(heads: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    head, *body = (f"| {' | '.join(map(_cell, cells))} |" for cells in (heads, *rows))
    return ["", head, "| --- |" + " ---: |" * (len(heads) - 1), *body]


def _cell(words: str) -> str:
    """Names come from files of others: they neither end a cell nor begin markup."""
    for sign in ("\\", "|", "`", "*", "_", "[", "]", "<", ">", "~"):
        words = words.replace(sign, f"\\{sign}")
    return printable(words)


def github(comparison: Comparison) -> list[str]:
    """Workflow commands: an error where the gate closes, a warning where it could not judge, a notice otherwise."""
    level, message = "notice", comparison.gate or comparison.sentence
    if comparison.gate is not None:
        level = "error" if comparison.regressed else "notice" if message.startswith("No regression:") else "warning"
    lines = [f"::{level} title=pipefix compare::{_escaped(message)}"]
    return lines + [f"::warning title=pipefix compare::{_escaped(doubt)}" for doubt in comparison.doubts]


def _escaped(words: str) -> str:
    return printable(words).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def junit(comparison: Comparison) -> list[str]:
    """One test case, which fails as the gate does."""
    target, message = html.escape(printable(comparison.after.target or "pipeline")), html.escape(printable(comparison.sentence))
    body = [f"<system-out>{html.escape(printable(line))}</system-out>" for line in ("; ".join(comparison.doubts),) if line]
    if comparison.regressed:
        body.insert(0, f'<failure message="{html.escape(printable(comparison.gate or ""))}">{message}</failure>')
    return [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites><testsuite name="pipefix compare" tests="1" failures="{int(comparison.regressed)}" errors="0" skipped="0">',
        f'<testcase classname="pipefix" name="throughput of {target}">{"".join(body)}</testcase>',
        "</testsuite></testsuites>",
    ]


FORMATS: dict[str, Callable[[Comparison], list[str]]] = {"markdown": markdown, "github": github, "junit": junit}
