"""The document of ``pipefix probe`` and ``show``: the card, then every figure behind it, each table and its chart being one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipefix.report import beside_stages, descriptions, doctor_report, program_report
from pipefix.report.card import Card, best_is_told, card, remedy_cost
from pipefix.report.document import (
    COLOURS,
    Bar,
    BarPart,
    Bars,
    Block,
    Document,
    Field,
    Item,
    Items,
    Paragraph,
    Section,
    Table,
    fields,
    filled,
    points,
    to_do,
)
from pipefix.report.runfile import Arm, RemedyFigures, Run, StageFigures, encode
from pipefix.vocabulary import quantity
from pipefix.vocabulary.gain import pedigree
from pipefix.vocabulary.quantity import Interval, exactly

OPERATIONS = 12
"""A terminal shows so many, the slowest."""
SHOWN = 0.02
"""Part of the time from which on the sampler has a row of its own."""
REMEDIES = 3
"""Told with the card."""
TOLD_AT_ONCE = ("problem", "warning")
WHAT_WAS_PROBED = ("choice", "wrapper", "assumed", "model-left-out")
"""Caveats without which the card would speak of something else than its reader thinks of."""
BEHIND = "The figures behind this: --full, or as a page for the browser: --html report.html"
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
    sections = filled(
        ("Where the time of a sample goes", _stages(run), ""),
        ("What a free stage or a remedy would win", _what_if(run), "page"),
        ("Slowest operations (own time a sample)", _operations(run), ""),
        ("Remedies", _remedies(run), ""),
        ("Flow", fields(beside_stages.flow(run)), ""),
        ("Batch by batch", beside_stages.waits(run), "page"),
        ("What samples cost", beside_stages.samples(run), "page"),
        ("What was tried (samples a second, every block kept in the run file)", _arms(run), ""),
        ("Audit of the machine and the settings", doctor_report.findings(run.audit), ""),
        (
            "Caveats: what these figures cannot say, and what would settle it",
            points([caveat.sentence for caveat in run.caveats]),
            "",
        ),
        ("The instrument's own cost", fields(beside_stages.instrument(run)), ""),
    )
    program = [] if run.program is None else [program_report.section(run.program, only="page")]
    return _document(run, sections=[*program, *sections], card_last=True)


def short(run: Run) -> Document:
    """The card in about 15 lines, the next best remedies, the audit's worst, and what was probed where that was a choice."""
    return _document(run, also=list(_also(run)), after=[Paragraph(BEHIND, "soft")], brief=True)


def _document(
    run: Run,
    *,
    sections: Sequence[Section] = (),
    also: Sequence[Field] = (),
    after: Sequence[Paragraph] = (),
    card_last: bool = False,
    brief: bool = False,
) -> Document:
    words = card(run)
    consumer = "no consumer" if run.consumer == "none" else f"consumer: {run.consumer}"
    measured = run.program is None or run.stages
    about = [" · ".join([*descriptions.settings_line(run.settings), consumer]), " · ".join(descriptions.machine_line(run.machine))]
    return Document(
        command="pipefix run" if run.program is not None else "pipefix probe",
        target=run.target or ("" if run.program is not None else "of an unnamed target"),
        created=run.created,
        about=[line for line in about[: 1 if brief else None] if line] if measured else [],
        warning="Interrupted: these figures are what was known by then." if run.partial else "",
        kind=COLOURS.get(words.kind, ""),
        badge=(words.kind.capitalize(), words.confidence or ""),
        card=[*_card(words, brief=brief), *also],
        card_last=card_last,
        tiles=_tiles(run),
        sections=list(sections),
        after=list(after),
        version=run.pipefix,
        data=encode(run),
    )


def _card(words: Card, *, brief: bool) -> Iterator[Field]:
    """``brief``: how sure the verdict is stands in its line, and two sentences of evidence behind each other."""
    sure = f"{words.kind}; {words.confidence}" if words.confidence else words.kind
    style = f"strong {COLOURS.get(words.kind, '')}".strip()
    if brief:
        yield Field("VERDICT", [Paragraph(f"{words.verdict} ({words.confidence})" if words.confidence else words.verdict, style)])
    else:
        yield Field("VERDICT", [Paragraph(words.verdict, style), Paragraph(f"({sure})", "soft")])
    if words.why and brief:
        yield Field("WHY", [Paragraph(" ".join(f"{evidence}: {text}" for evidence, text in words.why))])
    elif words.why:
        yield Field("WHY", [Paragraph(f"{evidence}: {text}") for evidence, text in words.why])
    yield Field("NEXT", [Paragraph(" ".join(words.next)), *to_do(words.command)])


def _also(run: Run) -> Iterator[Field]:
    others = run.proposed[1:REMEDIES] if best_is_told(run) else []
    listed = {
        "ALSO": [Paragraph(f"{rank}. {remedy.title}" + _worth(remedy, ": ")) for rank, remedy in enumerate(others, 2)],
        "AUDIT": [
            Paragraph(f"{finding.severity}: {finding.found}", "bad" if finding.severity == "problem" else "warn")
            for finding in run.audit
            if finding.severity in TOLD_AT_ONCE
        ],
        "NOTE": [Paragraph(caveat.sentence) for caveat in run.caveats if caveat.id in WHAT_WAS_PROBED],
    }
    for label, paragraphs in listed.items():
        if paragraphs:
            yield Field(label, list(paragraphs))


def _worth(remedy: RemedyFigures, before: str = "", unknown: str = "") -> str:
    if quantity.usable(remedy.speedup) is None:
        return unknown
    return f"{before}{quantity.times_between(remedy.speedup)} {pedigree(remedy.measured)}"


def _tiles(run: Run) -> list[tuple[str, str]]:
    rates = [(label, text) for label, text in beside_stages.flow(run) if label in ("delivered", "the consumer could take")]
    if run.waits is not None and quantity.known(run.waits.fed):
        rates.append(("fed", f"{quantity.percent(run.waits.fed)} (of the loop's time)"))
    start = run.startup.first_batch_s if run.startup is not None else None
    return [*rates, *([("first batch", quantity.seconds(start))] if quantity.known(start) else [])]


# -- where the time goes ---------------------------------------------------------------------------------------------


def _stages(run: Run) -> list[Block]:
    if not run.stages:
        return []
    bars = [_stage(stage, run) for stage in run.stages]
    left, sampling = unattributed_share(run), _sampler_share(run)
    if sampling:
        assert run.sampler_s is not None
        cells = ["sampler", quantity.percent(sampling), quantity.seconds_between(run.sampler_s), "-", "-", "-"]
        bars.append(Bar(cells=cells, value=exactly(sampling), stage="none", title="The sampler, in the training process"))
        left = (left or 0.0) - sampling
    cells = ["unattributed", _dash(quantity.percent(left)), _dash(quantity.seconds(_rest_s(run, sampling))), "-", "-", "-"]
    bars.append(Bar(cells=cells, value=exactly(left or 0.0), stage="none", title="What belongs to no stage"))
    total = quantity.usable(run.sample_s)
    if total is not None:
        parts = list(_together(run, sampling, left))
        cells = ["delivered", "-", f"{quantity.seconds_between(total)}", "-", "-", "-"]
        bars.append(Bar(cells=cells, value=None if parts else exactly(0.0), parts=parts, title="All stages together"))
    columns = ["stage", "share", "wall/sample", "CPU", "bytes", "if it were free"]
    rows = [_declined(bar, len(columns)) for bar in bars]
    table = Table(columns, rows, "lrrrrr", optional=["bytes", "CPU", "if it were free"], caption="Stages")
    every = f"One sample is delivered every {quantity.seconds_between(total)}. " if total is not None else ""
    hidden = (
        "A hidden stage runs beside something slower and costs nothing now." if any(stage.hidden for stage in run.stages) else ""
    )
    lead = (every + hidden).strip()
    return [Bars(table=table, bars=bars, inline=True), *([Paragraph(lead, "soft")] if lead else [])]


def _declined(bar: Bar, columns: int) -> list[str]:
    return [bar.cells[0], bar.note, *[""] * (columns - 2)] if bar.note else bar.cells


def _stage(stage: StageFigures, run: Run) -> Bar:
    if stage.declined is not None:
        return Bar(cells=[stage.stage], note=f"declined: {stage.declined}")
    share = share_interval(stage)
    cells = [
        stage.stage,
        "hidden" if stage.hidden else _dash(quantity.percent(stage.share)),
        _dash(quantity.seconds_between(stage.wall_s)),
        _dash(quantity.seconds(stage.cpu_s.value if stage.cpu_s else None)),
        _dash(quantity.size(stage.bytes)),
        _dash(if_free(stage)),
    ]
    marked = run.verdict is not None and stage.stage == run.verdict.stage
    title = f"{stage.stage}: {quantity.percent_between(share) if share is not None else cells[1]}"
    return Bar(cells=cells, value=share or exactly(0.0), stage=stage.stage, marked=marked, title=title)


def _together(run: Run, sampling: float, left: float | None) -> Iterator[BarPart]:
    """The whole of a sample's delivered time in its parts, one behind the other."""
    at = 0.0
    shares = [(stage.stage, share.value) for stage in run.stages if (share := share_interval(stage)) is not None]
    for name, part in [*shares, ("sampler", sampling), ("unattributed", left or 0.0)]:
        if 0 < part < 2:
            kind = "none" if name in ("sampler", "unattributed") else name
            yield BarPart(at, at + part, kind, f"{name}: {quantity.percent(part)}")
            at += part


def share_interval(stage: StageFigures) -> Interval | None:
    """The share with the wall clock's relative interval around it; None where it costs nothing now, or is not known."""
    if stage.hidden or stage.share is None or not quantity.known(stage.share):
        return None
    wall = quantity.usable(stage.wall_s)
    if wall is None or wall.value <= 0:
        return exactly(stage.share)
    return Interval(stage.share, stage.share * wall.low / wall.value, stage.share * wall.high / wall.value)


def if_free(stage: StageFigures) -> str:
    """What a free stage would win: measured, or at most what its part of the time leaves where no arm ran."""
    gain = stage.marginal_gain
    return f"at most {quantity.times(gain.at_most)}" if gain is not None and gain.at_most else quantity.times_between(gain)


def unattributed_share(run: Run) -> float | None:
    """The part of the delivered time that belongs to no stage."""
    total = quantity.usable(run.sample_s)
    if run.unattributed_s is None or not quantity.known(run.unattributed_s) or total is None or total.value <= 0:
        return None
    return run.unattributed_s / total.value


def _sampler_share(run: Run) -> float:
    """The part of it that the sampler takes; 0 where that is next to nothing, or runs beside something slower."""
    left, total, sampler = unattributed_share(run), quantity.usable(run.sample_s), quantity.usable(run.sampler_s)
    if left is None or total is None or sampler is None:
        return 0.0
    share = min(left, sampler.value / total.value)
    return share if share >= SHOWN and sampler.value <= (1 + SHOWN) * left * total.value else 0.0


def _rest_s(run: Run, sampling: float) -> float | None:
    total = quantity.usable(run.sample_s)
    if not sampling or total is None or run.unattributed_s is None:
        return run.unattributed_s
    return max(0.0, run.unattributed_s - sampling * total.value)


def _dash(text: str) -> str:
    return "-" if text == quantity.UNKNOWN else text


# -- what if, remedies -----------------------------------------------------------------------------------------------


def _what_if(run: Run) -> list[Block]:
    """What each free stage would win (measured by an arm), and what each remedy would (measured or predicted)."""
    bars = []
    for stage in run.stages:
        gain = quantity.usable(stage.marginal_gain)
        if gain is not None:
            words = quantity.times_between(gain)
            title = f"{stage.stage}: with the stage free, {words}, measured"
            cells = [f"{stage.stage} free", words, "measured on an arm"]
            bars.append(Bar(cells=cells, value=gain, stage=stage.stage, title=title))
    for remedy in run.proposed:
        worth = quantity.usable(remedy.speedup)
        if worth is not None:
            cells = [remedy.title, quantity.times_between(worth), pedigree(remedy.measured, whole=True)]
            title = ", ".join(cells)
            bars.append(Bar(cells=cells, value=worth, stage=remedy.stage, modelled=not remedy.measured, title=title))
    if not bars:
        return []
    lead = (
        "Throughput over throughput now. Full bars were measured: the pipeline ran with the stage replaced by a recording, or with "
        "the remedy in a trial. Pale bars are the model's prediction. Gains do not add up."
    )
    table = Table(["if", "throughput", "how known"], [bar.cells for bar in bars], "lrl", caption="What if")
    return [Paragraph(lead, "soft"), Bars(table=table, bars=bars, start=1.0)]


def _remedies(run: Run) -> list[Block]:
    blocks: list[Block] = []
    if run.proposed:
        blocks.append(Items([_proposed(remedy) for remedy in run.proposed], numbered=True))
    return blocks + points(
        [f"{remedy.status}: {remedy.title}: {remedy.why}" for remedy in run.remedies if remedy.status != "proposed"]
    )


def _proposed(remedy: RemedyFigures) -> Item:
    cost = remedy_cost(remedy)
    why = Paragraph(f"{remedy.stage}: {remedy.why}" + (f" ({cost})" if cost else ""))
    mind = [Paragraph(f"mind: {remedy.risk}")] if remedy.risk else []
    figure = _worth(remedy, unknown=f"not known {pedigree(remedy.measured)}")
    return Item(text=remedy.title, figure=figure, certain=remedy.measured, blocks=[why, *mind, *to_do(remedy.command)])


# -- operations ------------------------------------------------------------------------------------------------------


def _operations(run: Run) -> list[Block]:
    """Every operation, the slowest first."""
    listed = [(stage.stage, op) for stage in run.stages for op in stage.ops if quantity.known(op.wall_s)]
    totals = {stage.stage: sum(op.wall_s for op in stage.ops if quantity.known(op.wall_s)) or 1.0 for stage in run.stages}
    bars, notes = [], []
    for stage, op in sorted(listed, key=lambda pair: pair[1].wall_s, reverse=True):
        cells = [
            op.name,
            quantity.seconds(op.wall_s),
            f"{quantity.percent(op.wall_s / totals[stage])} of {stage}",
            _dash(quantity.seconds(op.cpu_s)),
            quantity.calls(op.calls) or "1 call",
        ]
        bars.append(Bar(cells=cells, value=exactly(op.wall_s), stage=stage, title=f"{op.name}: {cells[1]}, {cells[2]}"))
        if op.opaque:
            notes.append(f"{op.name} cannot be cut further: {op.opaque}")
    if not bars:
        return []
    table = Table(["operation", "wall/sample", "part", "CPU", "calls"], [bar.cells for bar in bars], "lrlrr", caption="Operations")
    return [Bars(table=table, bars=bars, first=OPERATIONS), *map(Paragraph, notes)]


# -- arms and audit ----------------------------------------------------------------------------------------------------


def _arms(run: Run) -> list[Block]:
    """Every arm with what it tried, the quickest first, against the pipeline as it is without clocks."""
    if not run.arms:
        return []
    middles = {arm.name: quantity.median(arm.rates) for arm in run.arms}
    untimed = middles.get("plain") or middles.get("real")
    ranked = sorted(run.arms, key=lambda arm: (arm.declined is not None, -(middles[arm.name] or 0.0)))
    bars = [_arm(arm, untimed) for arm in ranked]
    unit = run.throughput.unit if run.throughput is not None else "samples/s"
    columns = ["arm", unit, "times", "from-to", "blocks", "tried"]
    table = Table(columns, [_declined(bar, 6) for bar in bars], "lrrrrl", optional=["times", "tried"], caption="Arms")
    lead = (
        "Each block is the same loader with the named stages replaced by recordings; the blocks of all arms took turns. Multiples "
        "are of the pipeline as it is, without clocks."
    )
    return [Bars(table=table, bars=bars), Paragraph(lead, "soft")]


def _arm(arm: Arm, untimed: float | None) -> Bar:
    if arm.declined is not None:
        return Bar(cells=[arm.name], note=f"declined: {arm.declined}")
    blocks = [rate for rate in arm.rates if quantity.known(rate)]
    middle = quantity.median(blocks)
    cells = [
        arm.name,
        _dash(quantity.number(middle)),
        quantity.times(middle / untimed) if middle is not None and untimed else "-",
        quantity.between(quantity.number(min(blocks)), quantity.number(max(blocks))) if blocks else "-",
        str(len(blocks)),
        ARMS.get(arm.name, ", ".join(arm.replaces) or "nothing replaced"),
    ]
    title = f"{cells[-1]}: median {cells[1]} of {quantity.counted(len(blocks), 'block')}"
    return Bar(cells=cells, value=exactly(middle) if middle is not None else None, points=blocks, title=title)
