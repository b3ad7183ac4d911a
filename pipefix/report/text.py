"""A run as lines for the terminal: Verdict / Why / Next on one card, alone or below the figures behind it.

No line is wider than asked. Bars are drawn in Unicode, or in ASCII where the stream takes nothing else; colours only when asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pipefix.report import setup, wording
from pipefix.report.card import best_is_told, card, remedy_cost
from pipefix.report.columns import Paint, cells, clip, for_terminal, left, wrap
from pipefix.report.runfile import Arm, RemedyFigures, Run
from pipefix.report.stage_table import stage_table
from pipefix.vocabulary.gain import pedigree
from pipefix.vocabulary.nvml import in_words

OPS_A_STAGE = 3
REMEDIES = 3
"""Told with the card."""
TOLD_AT_ONCE = ("problem", "warning")
WHAT_WAS_PROBED = ("choice", "wrapper", "assumed", "model-left-out")
"""Caveats without which the card would speak of something else than its reader thinks of."""
BEHIND = "The figures behind this: --full, or as a page for the browser: --html report.html"
_KINDS = {"input-bound": "red", "step-bound": "green", "balanced": "green", "inconclusive": "yellow"}
_SEVERITIES = {"problem": "red", "warning": "yellow", "note": "blue"}


@for_terminal
def lines(run: Run, paint: Paint) -> Iterator[str]:
    """The whole report, the card last: that is what a terminal shows then."""
    yield from _head(run, paint)
    for title, block in _BLOCKS:
        body = list(block(run, paint))
        if body:
            yield from ("", *_title(title, paint), *body)
    yield from ("", paint.rule(), *_card(run, paint), paint.rule())


@for_terminal
def short(run: Run, paint: Paint) -> Iterator[str]:
    """The card, the next best remedies, what the audit has against the settings, and what was probed where that was a choice."""
    yield from (*_head(run, paint), paint.rule(), *_card(run, paint), *_also(run, paint), paint.rule())
    yield from paint.paragraph(BEHIND, "dim")


def _also(run: Run, paint: Paint) -> Iterator[str]:
    proposed = [remedy for remedy in run.remedies if remedy.status == "proposed"]
    label = "ALSO"
    for rank, remedy in enumerate(proposed[1:REMEDIES] if best_is_told(run) else (), 2):
        how = pedigree(remedy.measured)
        worth = f": {wording.times_between(remedy.speedup)} {how}" if wording.usable(remedy.speedup) is not None else ""
        yield from paint.labelled(label, f"{rank}. {remedy.title}{worth}")
        label = ""
    label = "AUDIT"
    for finding in run.audit:
        if finding.severity in TOLD_AT_ONCE:
            yield from paint.labelled(label, f"{finding.severity}: {finding.found}", _SEVERITIES[finding.severity])
            label = ""
    label = "NOTE"
    for caveat in run.caveats:
        if caveat.id in WHAT_WAS_PROBED:
            yield from paint.labelled(label, caveat.sentence)
            label = ""


def _title(title: str, paint: Paint) -> list[str]:
    return [paint.ink(clip(title, paint.width), "bold")]


def _phrases(phrases: list[str], paint: Paint, indent: int = 0) -> Iterator[str]:
    """Phrases in a row, a dot between them, wrapped between phrases."""
    dot = " · " if paint.unicode else " - "
    line = ""
    for phrase in map(paint.text, phrases):
        if line and cells(line) + cells(dot) + cells(phrase) > paint.width - indent:
            yield " " * indent + line
            line = ""
        line = line + dot + phrase if line else phrase
        if cells(line) > paint.width - indent:
            *full, line = wrap(line, paint.width - indent)
            yield from (" " * indent + row for row in full)
    if line:
        yield " " * indent + line


def _head(run: Run, paint: Paint) -> Iterator[str]:
    made = paint.text(run.created)
    name = paint.text(f"pipefix probe {run.target or 'of an unnamed target'}")
    if made and cells(name) + cells(made) + 2 <= paint.width:
        yield paint.ink(left(name, paint.width - cells(made)), "bold") + paint.ink(made, "dim")
    else:
        yield from paint.paragraph(name, "bold")
        if made:
            yield paint.ink(clip(made, paint.width), "dim")
    consumer = "no consumer" if run.consumer == "none" else f"consumer: {run.consumer}"
    for row in _phrases([*setup.settings_line(run.settings), consumer], paint):
        yield paint.ink(row, "dim")
    for row in _phrases(setup.machine_line(run.machine), paint):
        yield paint.ink(row, "dim")
    if run.partial:
        yield paint.ink(clip("Interrupted: these figures are what was known by then.", paint.width), "yellow")


def _card(run: Run, paint: Paint) -> Iterator[str]:
    said = card(run)
    yield from paint.labelled("VERDICT", said.verdict, "bold", _KINDS.get(said.kind, "bold"))
    sure = f"{said.kind}; {said.confidence}" if said.confidence else said.kind
    yield from paint.labelled("", f"({sure})", "dim")
    label = "WHY"
    for evidence, sentence in said.why:
        yield from paint.labelled(label, f"{evidence}: {sentence}")
        label = ""
    label = "NEXT"
    yield from paint.labelled(label, " ".join(said.next))
    if said.command:
        yield from paint.to_do(said.command)


def _ops(run: Run, paint: Paint) -> Iterator[str]:
    rows, notes = [], []
    for stage in run.stages:
        ranked = sorted((op for op in stage.ops if wording.known(op.wall_s)), key=lambda op: op.wall_s, reverse=True)
        for op in ranked[:OPS_A_STAGE]:
            cpu = f"CPU {wording.seconds(op.cpu_s)}" if wording.known(op.cpu_s) else ""
            name = op.name + (" *" if op.opaque else "")
            rows.append((stage.stage, name, wording.seconds(op.wall_s), cpu, wording.calls(op.calls)))
            if op.opaque:
                notes.append(f"* {op.name}: cannot be cut further: {op.opaque}")
        rest = ranked[OPS_A_STAGE:]
        if rest:
            rows.append((stage.stage, f"and {len(rest)} more", wording.seconds(sum(op.wall_s for op in rest)), "", ""))
    yield from paint.table(rows, "llrrr", stretch=1)
    for note in notes:
        yield from paint.paragraph(note, first="  ")


# -- beside the stages -----------------------------------------------------------------------------------------------


def _flow(run: Run, paint: Paint) -> Iterator[str]:
    rows = []
    if run.throughput is not None:
        unit = run.throughput.unit
        rows.append(("delivered", wording.rate_between(run.throughput.delivered, unit)))
        if run.throughput.demand is not None:
            rows.append(("the consumer could take", wording.rate_between(run.throughput.demand, unit)))
    if run.waits is not None and wording.known(run.waits.fed):
        period = f"; a long wait every {run.waits.period} batches" if run.waits.period else ""
        apart = f"; the loader's own {wording.seconds(run.waits.loader_s)} a batch apart" if run.waits.loader_s else ""
        rows.append(("fed", f"{wording.percent(run.waits.fed)} of the loop's time{apart}{period}"))
    rows += _start_and_tails(run)
    said = in_words(run.machine.get("while_measured", {}), "nvml_")
    if said:
        rows.append(("the GPU, says its driver", said))
    cold = setup.cold_sentence(run)
    if cold:
        rows.append(("cold storage", cold))
    wide = max((cells(name) for name, _ in rows), default=0) + 4
    for name, figure in rows:
        yield from paint.labelled("  " + name, figure, indent=min(wide, paint.width // 2))


def _start_and_tails(run: Run) -> list[tuple[str, str]]:
    rows = []
    if run.startup is not None:
        named = {"first batch": run.startup.first_batch_s, "next epoch's first batch": run.startup.epoch_restart_s}
        said = [f"{name} after {wording.seconds(value)}" for name, value in named.items() if wording.known(value)]
        if wording.known(run.startup.load_target_s):
            said.append(f"loading the target took {wording.seconds(run.startup.load_target_s)}")
        rows += [("start-up", "; ".join(said))] if said else []
    if run.tail is not None:
        tail = run.tail
        named = {"p50": tail.p50_s, "p95": tail.p95_s, "p99": tail.p99_s, "slowest": tail.max_s}
        said = [f"{name} {wording.seconds(value)}" for name, value in named.items()]
        rows.append(("a sample's cost", f"{', '.join(said)} (of {wording.counted(tail.samples, 'sample')})"))
        if wording.known(tail.head_of_line_s) and tail.head_of_line_s:
            waited = wording.seconds(tail.head_of_line_s)
            rows.append(("out-of-order wait", f"{waited} a sample spent ready behind an unfinished earlier batch"))
    if run.step_split is not None:
        split = run.step_split
        named = {"forward": split.forward_s, "backward": split.backward_s, "optimizer": split.optimizer_s, "other": split.other_s}
        said = [f"{name} {wording.seconds(value)}" for name, value in named.items() if wording.known(value)]
        rows += [("a step", f"{', '.join(said)} a batch")] if said else []
    return rows


def _arms(run: Run, paint: Paint) -> Iterator[str]:
    def row(arm: Arm) -> tuple[str, ...]:
        middle = wording.median(arm.rates)
        blocks = [rate for rate in arm.rates if wording.known(rate)]
        spread = wording.between(wording.number(min(blocks)), wording.number(max(blocks))) if blocks else "-"
        return arm.name, ", ".join(arm.replaces) or "nothing", wording.number(middle), spread, str(len(blocks))

    tried = [arm for arm in run.arms if arm.declined is None]
    if tried:
        unit = run.throughput.unit if run.throughput is not None else "samples/s"
        yield from paint.table([("arm", "replaced", unit, "from-to", "blocks"), *map(row, tried)], "llrrr", stretch=1)
    for arm in run.arms:
        if arm.declined is not None:
            yield from paint.paragraph(f"{arm.name}: declined: {arm.declined}", first="  ")


def _remedies(run: Run, paint: Paint) -> Iterator[str]:
    rank = 0
    for remedy in run.remedies:
        if remedy.status == "proposed":
            rank += 1
            yield from _proposed(rank, remedy, paint)
    for remedy in run.remedies:
        if remedy.status != "proposed":
            yield from paint.paragraph(f"{remedy.status}: {remedy.title}: {remedy.why}", "dim", first="   - ")


def _proposed(rank: int, remedy: RemedyFigures, paint: Paint) -> Iterator[str]:
    worth = wording.times_between(remedy.speedup) if wording.usable(remedy.speedup) is not None else "not known"
    how = pedigree(remedy.measured)
    head = f"{rank:>2}. "
    title = paint.text(remedy.title)
    figure = f"{worth} {how}"
    room = paint.width - 2 - len(head)
    if cells(title) + cells(figure) + 2 <= room:
        yield "  " + head + left(title, room - cells(figure)) + paint.ink(figure, "bold", "green")
    else:
        rows = wrap(title, room)
        yield from ("  " + (head if not number else "    ") + row for number, row in enumerate(rows))
        yield "      " + paint.ink(clip(figure, paint.width - 6), "bold", "green")
    cost = remedy_cost(remedy)
    detail = f"{remedy.stage}: {remedy.why}" + (f" ({cost})" if cost else "")
    yield from paint.paragraph(detail, first=" " * 6)
    if remedy.risk:
        yield from paint.paragraph(f"mind: {remedy.risk}", first=" " * 6)
    if remedy.command:
        yield from paint.to_do(remedy.command, indent=6)


def _audit(run: Run, paint: Paint) -> Iterator[str]:
    for finding in run.audit:
        styles = ("bold", _SEVERITIES.get(finding.severity, "bold"))
        yield from paint.paragraph(f"{finding.severity}: {finding.found}", *styles, first="  ")
        said = finding.advice + (f" (rule: {finding.rule})" if finding.rule else "")
        yield from paint.paragraph(said, first=" " * 4)


def _caveats(run: Run, paint: Paint) -> Iterator[str]:
    for caveat in run.caveats:
        yield from paint.paragraph(caveat.sentence, first="  - ")


def _instrument(run: Run, paint: Paint) -> Iterator[str]:
    tool = run.instrument
    if tool is None:
        return
    said = []
    if wording.known(tool.seconds):
        said.append(f"the probe took {wording.seconds(tool.seconds)}")
    if wording.known(tool.seam_cost_s):
        each = f", {wording.number(tool.seams_per_sample)} a sample" if wording.known(tool.seams_per_sample) else ""
        said.append(f"a timed call costs {wording.seconds(tool.seam_cost_s)}{each}")
    if wording.known(tool.slowdown):
        said.append(f"samples took {wording.times(tool.slowdown)} as long with the clocks as without")
    if wording.known(tool.peak_rss_bytes):
        said.append(f"peak memory {wording.size(tool.peak_rss_bytes)}")
    if wording.known(tool.recording_bytes):
        said.append(f"recordings {wording.size(tool.recording_bytes)}")
    yield from _phrases(said, paint, indent=2)


_BLOCKS: tuple[tuple[str, Callable[[Run, Paint], Iterator[str]]], ...] = (
    ("Where the time of a sample goes", stage_table),
    ("Slowest operations (own time a sample)", _ops),
    ("Flow", _flow),
    ("What was tried (samples a second, every block kept in the run file)", _arms),
    ("Remedies", _remedies),
    ("Audit of the machine and the settings", _audit),
    ("Caveats: what these figures cannot say, and what would settle it", _caveats),
    ("The instrument's own cost", _instrument),
)
