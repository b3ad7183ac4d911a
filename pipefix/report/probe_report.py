"""The document of ``pipefix probe`` and ``show``: the card, then every figure behind it, each table and its chart being one."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pipefix.report import descriptions, doctor_report, program_report, stage_table
from pipefix.report.card import Card, best_is_told, card, remedy_cost
from pipefix.report.document import Bar, Block, Document, Field, Item, Items, Paragraph, chart, fields, filled, points, to_do
from pipefix.report.runfile import Arm, RemedyFigures, Run, encode
from pipefix.report.stage_table import dash
from pipefix.vocabulary import quantity
from pipefix.vocabulary.gain import pedigree

OPERATIONS = 12
"""A terminal shows so many, the slowest."""
REMEDIES = 3
"""Told with the card."""
TOLD_AT_ONCE = {"problem": "bad", "warning": "warn"}
"""Severities, and their styles."""
WHAT_WAS_PROBED = ("choice", "wrapper", "assumed", "model-left-out", "whole-stream-each", "own-cache-lost")
"""Caveats without which the card would speak of something else than its reader thinks of."""
BEHIND = "The figures behind this: --full, or as a page for the browser: --html report.html"
OF_AN_OBJECT = 'The figures behind this: run.save("run.json"), pipefix show --full run.json; or as a page: run.html("report.html")'
ARMS = {
    "real": "as it is",
    "plain": "as it is, without clocks",
    "real-cold": "as it is, files not in memory",
    "no-consumer": "without the step",
    "consumer-alone": "the step alone",
    "consumer-resident": "the step, its batch on the device",
    "storage-from-memory": "storage free",
    "decode-recorded": "decode free",
    "augment-recorded": "augment free",
    "collate-recorded": "collate free",
    "handover-skipped": "hand-over free",
    "sampler-recorded": "sampler free",
    "decoded-recorded": "samples stored decoded",
    "samples-recorded": "samples stored finished",
    "batch-prebuilt": "batches ready",
    "loader-floor": "the loader alone, data free",
}
"""What arms try, in words; others are called as they are."""


def full(run: Run) -> Document:
    """The whole report; a terminal shows the card last."""
    caveats = [caveat.sentence for caveat in run.caveats]
    cost = "The instrument's own cost" if run.instrument is not None else "How it was decided"
    sections = filled(
        ("Where the time of a sample goes", stage_table.stages(run), ""),
        ("What a free stage or a remedy would win", _what_if(run), "page"),
        ("Slowest operations (own time a sample)", _operations(run), ""),
        ("Remedies", _remedies(run), ""),
        ("Flow", fields(stage_table.flow(run)), ""),
        ("Batch by batch", stage_table.waits(run), "page"),
        ("What samples cost", stage_table.samples(run), "page"),
        ("What was tried (samples a second, every block kept in the run file)", _arms(run), ""),
        ("Audit of the machine and the settings", doctor_report.findings(run.audit), ""),
        ("Caveats: what these figures cannot say, and what would settle it", points(caveats), ""),
        (cost, fields(stage_table.instrument(run)), ""),
    )
    program = [] if run.program is None else [program_report.section(run.program, only="page")]
    return replace(_document(run), sections=[*program, *sections], card_last=True)


def short(run: Run) -> Document:
    """The card in about 15 lines, the next best remedies, the audit's worst, and what was probed where that was a choice."""
    document = _document(run, brief=True)
    behind = [Paragraph(OF_AN_OBJECT if run.target.endswith(" object>") else BEHIND, "soft")] if run.program is None else []
    return replace(document, card=[*document.card, *_also(run)], after=behind)


def _document(run: Run, *, brief: bool = False) -> Document:
    """With the card alone."""
    words = card(run)
    consumer = "no consumer" if run.consumer == "none" else f"consumer: {run.consumer}"
    measured = run.program is None or run.stages
    about = [" · ".join([*descriptions.settings_line(run.settings), consumer]), " · ".join(descriptions.machine_line(run.machine))]
    return Document(
        command="pipefix run" if run.program is not None else "pipefix probe",
        target=run.target or ("" if run.program is not None else "of an unnamed target"), created=run.created,
        about=[line for line in about[: 1 if brief else None] if line] if measured else [],
        warning="Interrupted: these figures are what was known by then." if run.partial else "",
        kind=words.colour, badge=words.kind.capitalize(), card=list(_card(words, brief=brief)),
        tiles=_tiles(run), version=run.pipefix, data=encode(run),
    )  # fmt: skip


def _card(words: Card, *, brief: bool) -> Iterator[Field]:
    """``brief``: how sure the verdict is stands in its line, and two sentences of evidence behind each other."""
    style, why = f"strong {words.colour}".strip(), [f"{evidence}: {text}" for evidence, text in words.why]
    if brief:
        yield Field("VERDICT", [Paragraph(f"{words.verdict} ({words.confidence})" if words.confidence else words.verdict, style)])
    else:
        sure = f"{words.kind}; {words.confidence}" if words.confidence else words.kind
        yield Field("VERDICT", [Paragraph(words.verdict, style), Paragraph(f"({sure})", "soft")])
    if why:
        yield Field("WHY", [Paragraph(text) for text in ([" ".join(why)] if brief else why)])
    yield Field("NEXT", [Paragraph(" ".join(words.next)), *to_do(words.command)])


def _also(run: Run) -> Iterator[Field]:
    others = run.proposed[1:REMEDIES] if best_is_told(run) else []
    worst = [(f"{finding.severity}: {finding.found}", TOLD_AT_ONCE.get(finding.severity)) for finding in run.audit]
    listed = {
        "ALSO": [Paragraph(f"{rank}. {remedy.title}" + _worth(remedy, ": ")) for rank, remedy in enumerate(others, 2)],
        "AUDIT": [Paragraph(text, style) for text, style in worst if style is not None],
        "NOTE": [Paragraph(caveat.sentence) for caveat in run.caveats if caveat.id in WHAT_WAS_PROBED],
    }
    yield from (Field(label, list(paragraphs)) for label, paragraphs in listed.items() if paragraphs)


def _worth(remedy: RemedyFigures, before: str = "", unknown: str = "") -> str:
    if quantity.usable(remedy.speedup) is None:
        return unknown
    return f"{before}{quantity.times_between(remedy.speedup)} {pedigree(remedy.measured)}"


def _tiles(run: Run) -> list[tuple[str, str]]:
    rates = [(label, text) for label, text in stage_table.flow(run) if label in ("delivered", "the consumer could take")]
    if run.waits is not None and quantity.known(run.waits.fed):
        rates.append(("fed", f"{quantity.percent(run.waits.fed)} (of the loop's time)"))
    start = run.startup.first_batch_s if run.startup is not None else None
    return [*rates, *([("first batch", quantity.seconds(start))] if quantity.known(start) else [])]


def _what_if(run: Run) -> list[Block]:
    """What each free stage would win (measured by an arm), and what each remedy would (measured or predicted)."""
    bars = []
    for name, figures in [*((stage.stage, stage.marginal_gain) for stage in run.stages), ("sampler", run.sampler_gain)]:
        gain, words = quantity.usable(figures), quantity.times_between(figures)
        if gain is not None:
            cells, title = [f"{name} free", words, "measured on an arm"], f"{name}: were it free, {words}, measured"
            bars.append(Bar(cells=cells, value=gain, stage=name if name != "sampler" else "none", title=title))
    for remedy in run.proposed:
        worth = quantity.usable(remedy.speedup)
        if worth is not None:
            cells = [remedy.title, quantity.times_between(worth), pedigree(remedy.measured, whole=True)]
            bars.append(Bar(cells=cells, value=worth, stage=remedy.stage, modelled=not remedy.measured, title=", ".join(cells)))
    if not bars:
        return []
    lead = (
        "Throughput over throughput now. Full bars were measured: the pipeline ran with the stage replaced by a recording, or with "
        "the remedy in a trial. Pale bars are the model's prediction. Gains do not add up."
    )
    return [Paragraph(lead, "soft"), chart(["if", "throughput", "how known"], bars, "lrl", "What if", start=1.0)]


def _remedies(run: Run) -> list[Block]:
    others = [f"{remedy.status}: {remedy.title}: {remedy.why}" for remedy in run.remedies if remedy.status != "proposed"]
    proposed = [Items([_proposed(remedy) for remedy in run.proposed], numbered=True)] if run.proposed else []
    return [*proposed, *points(others)]


def _proposed(remedy: RemedyFigures) -> Item:
    cost = f" ({told})" if (told := remedy_cost(remedy)) else ""
    why = Paragraph(f"{remedy.stage}: {remedy.why}{cost}")
    mind = [Paragraph(f"mind: {remedy.risk}")] if remedy.risk else []
    figure = _worth(remedy, unknown=f"not known {pedigree(remedy.measured)}")
    return Item(text=remedy.title, figure=figure, certain=remedy.measured, blocks=[why, *mind, *to_do(remedy.command)])


def _operations(run: Run) -> list[Block]:
    listed = [(stage.stage, op) for stage in run.stages for op in stage.ops if quantity.known(op.wall_s)]
    totals = {stage.stage: sum(op.wall_s for op in stage.ops if quantity.known(op.wall_s)) or 1.0 for stage in run.stages}
    bars, notes = [], []
    for stage, op in sorted(listed, key=lambda pair: pair[1].wall_s, reverse=True):
        wall, part = quantity.seconds(op.wall_s), f"{quantity.percent(op.wall_s / totals[stage])} of {stage}"
        cells = [op.name, wall, part, dash(quantity.seconds(op.cpu_s)), quantity.calls(op.calls) or "1 call"]
        bars.append(Bar(cells=cells, value=quantity.exactly(op.wall_s), stage=stage, title=f"{op.name}: {wall}, {part}"))
        if op.opaque:
            notes.append(f"{op.name} cannot be cut further: {op.opaque}")
    if not bars:
        return []
    columns = ["operation", "wall/sample", "part", "CPU", "calls"]
    return [chart(columns, bars, "lrlrr", "Operations", first=OPERATIONS), *map(Paragraph, notes)]


def _arms(run: Run) -> list[Block]:
    """Every arm with what it tried, the quickest first, against the pipeline as it is without clocks."""
    if not run.arms:
        return []
    middles = {arm.name: quantity.median(arm.rates) for arm in run.arms}
    untimed = middles.get("plain") or middles.get("real")
    ranked = sorted(run.arms, key=lambda arm: (arm.declined is not None, -(middles[arm.name] or 0.0)))
    bars = [_arm(arm, untimed) for arm in ranked]
    columns = ["arm", run.throughput.unit if run.throughput is not None else "samples/s", "times", "from-to", "blocks", "tried"]
    lead = (
        "Each block is the same loader with the named stages replaced by recordings; the blocks of all arms took turns. Multiples "
        "are of the pipeline as it is, without clocks."
    )
    return [chart(columns, bars, "lrrrrl", "Arms", ["times", "tried"]), Paragraph(lead, "soft")]


def _arm(arm: Arm, untimed: float | None) -> Bar:
    if arm.declined is not None:
        return Bar(cells=[arm.name], note=f"declined: {arm.declined}")
    blocks = [rate for rate in arm.rates if quantity.known(rate)]
    middle = quantity.median(blocks)
    rate, tried = dash(quantity.number(middle)), ARMS.get(arm.name, ", ".join(arm.replaces) or "nothing replaced")
    times = quantity.times(middle / untimed) if middle is not None and untimed else "-"
    ends = quantity.between(quantity.number(min(blocks)), quantity.number(max(blocks))) if blocks else "-"
    cells = [arm.name, rate, times, ends, str(len(blocks)), tried]
    title = f"{tried}: median {rate} of {quantity.counted(len(blocks), 'block')}"
    return Bar(cells=cells, value=quantity.exactly(middle) if middle is not None else None, points=blocks, title=title)
