"""The page's figures from a run: each is a plot, and the same figures as a table behind it."""

from __future__ import annotations

from pipefix.report import plots, wording
from pipefix.report.card import remedy_pedigree
from pipefix.report.markup import Markup, Piece, behind, el, join, name, sentence, table
from pipefix.report.plots import BarPart, PlotRow, hue
from pipefix.report.runfile import Arm, OpFigures, Run, StageFigures
from pipefix.report.stage_table import if_free, unattributed_share
from pipefix.vocabulary.gain import pedigree as how_known
from pipefix.vocabulary.quantity import Interval

_DASH = "-"


def _figure(caption: str, plot: Piece, *behind_it: Piece) -> Markup:
    return el("figure", el("figcaption", caption), plot, *behind_it)


def _dash(said: str) -> str:
    return _DASH if said == wording.UNKNOWN else said


def _cell(said: str) -> Markup:
    """A figure for a table: its interval is not broken across lines."""
    figure, opening, rest = _dash(said).partition(" (")
    return join((figure, " " if opening else None, el("span", f"({rest}", class_="whole") if opening else None))


# -- where the time goes ---------------------------------------------------------------------------------------------


def stages_figure(run: Run) -> Markup:
    if not run.stages:
        return Markup("")
    shares = {stage.stage: _share_interval(stage) for stage in run.stages}
    ends = [one.high for one in shares.values() if one is not None and wording.known(one.high)]
    high = min(1.0, max([one.value for one in shares.values() if one is not None] + ends, default=1.0) * 1.05)
    scale = plots.spanning([high], base=0.0)
    rows = [_stage_row(stage, shares[stage.stage], scale) for stage in run.stages] + [_unattributed_row(run, scale)]
    worst = run.verdict.stage if run.verdict is not None else None
    parts = [
        BarPart(stage.share or 0.0, hue(stage.stage), f"{stage.stage}: {wording.percent(stage.share)}")
        for stage in run.stages
        if _visible(stage)
    ]
    left = unattributed_share(run)
    parts += [BarPart(left, "s-none", f"unattributed: {wording.percent(left)}")] if left else []
    whole = plots.stacked(parts, max(1.0, sum(part.size for part in parts)), height=34, label=_stack_words(parts, worst))
    axis = "of a sample's delivered time"
    chart = plots.chart(rows, scale, axis=axis, ticks=[wording.percent(tick) for tick in scale.ticks])
    total = wording.usable(run.sample_s)
    lead = f"One sample is delivered every {wording.seconds_between(total)}. " if total is not None else ""
    lead += "A hidden stage runs beside something slower and costs nothing now."
    return join(
        (el("p", lead, class_="lead"), _figure("Share of the delivered time, by stage", [whole, chart], _stages_behind(run)))
    )


def _visible(stage: StageFigures) -> bool:
    return not stage.hidden and stage.share is not None and wording.known(stage.share)


def _stack_words(parts: list[BarPart], worst: str | None) -> str:
    return "; ".join(part.title for part in parts) + (f". The stage to work on: {worst}" if worst else "")


def _share_interval(stage: StageFigures) -> Interval | None:
    """The share with the wall clock's relative interval around it."""
    if stage.share is None or not _visible(stage):
        return None
    wall = wording.usable(stage.wall_s)
    if wall is None or wall.value <= 0:
        return Interval(stage.share, stage.share, stage.share)
    return Interval(stage.share, stage.share * wall.low / wall.value, stage.share * wall.high / wall.value)


def _stage_row(stage: StageFigures, share: Interval | None, scale: plots.Scale) -> PlotRow:
    label = name(stage.stage)
    if stage.declined is not None:
        return PlotRow(label=label, said=Markup(""), note=join(("Declined: ", sentence(stage.declined))))
    wall = el("span", _dash(wording.seconds_between(stage.wall_s)), class_="interval")
    if share is None:
        word = "hidden" if stage.hidden else _DASH
        return PlotRow(label=label, said=join((el("b", word), " ", wall)), title=f"{stage.stage}: {word}")
    shapes = plots.bar(scale, share, base=0.0, class_=hue(stage.stage))
    said = join((el("b", wording.percent(stage.share)), " ", wall))
    return PlotRow(label=label, said=said, shapes=shapes, title=f"{stage.stage}: {wording.percent_between(share)}")


def _unattributed_row(run: Run, scale: plots.Scale) -> PlotRow:
    share = unattributed_share(run)
    seconds = wording.seconds(run.unattributed_s) if share is not None else ""
    said = join((el("b", _dash(wording.percent(share))), " ", el("span", seconds, class_="interval")))
    shapes = plots.bar(scale, Interval(share, share, share), base=0.0, class_="s-none") if share else Markup("")
    return PlotRow(label=Markup("unattributed"), said=said, shapes=shapes, title="What belongs to no stage")


def _stages_behind(run: Run) -> Markup:
    heads = ("Stage", "Share", "Wall a sample", "CPU a sample", "Bytes a sample", "If it were free")
    rows: list[list[Piece]] = []
    for stage in run.stages:
        if stage.declined is not None:
            rows.append([name(stage.stage), join(("declined: ", sentence(stage.declined))), "", "", "", ""])
            continue
        share = "hidden" if stage.hidden else wording.percent_between(_share_interval(stage))
        figures = [share, wording.seconds_between(stage.wall_s), wording.seconds_between(stage.cpu_s)]
        figures += [wording.size(stage.bytes), if_free(stage)]
        rows.append([name(stage.stage), *map(_cell, figures)])
    rows.append(
        ["unattributed", _dash(wording.percent(unattributed_share(run))), _dash(wording.seconds(run.unattributed_s)), "", "", ""]
    )
    return behind("These figures as a table", table("Stages", heads, rows))


_WHAT_IF = (
    "Throughput over throughput now. Full bars were measured: the pipeline ran with the stage replaced by a recording, or with the "
    "remedy in a trial. Pale bars are the model's prediction. Gains do not add up."
)

# -- what if ---------------------------------------------------------------------------------------------------------


def what_if_figure(run: Run) -> Markup:
    """What each free stage would win (measured by an arm), and what each remedy would (measured or predicted)."""
    gains = [(stage, gain) for stage in run.stages if (gain := wording.usable(stage.marginal_gain)) is not None]
    remedies = [
        (one, worth) for one in run.remedies if one.status == "proposed" and (worth := wording.usable(one.speedup)) is not None
    ]
    if not gains and not remedies:
        return Markup("")
    ends = [end for _, one in (*gains, *remedies) for end in (one.low, one.value, one.high)]
    scale = plots.spanning(ends, base=1.0)
    rows, behind_it = [], []
    for stage, gain in gains:
        said = f"{stage.stage}: with the stage free, {wording.times_between(gain)}, measured"
        rows.append(_gain_row(join((name(stage.stage), " free")), gain, scale, hue(stage.stage), said, "measured"))
        behind_it.append([join((name(stage.stage), " free")), _cell(wording.times_between(gain)), "measured on an arm"])
    for remedy, worth in remedies:
        pedigree = remedy_pedigree(remedy)
        class_ = f"{hue(remedy.stage)}{'' if remedy.measured else ' modelled'}"
        said = f"{remedy.title}: {wording.times_between(worth)}, {pedigree}"
        rows.append(_gain_row(name(remedy.title), worth, scale, class_, said, how_known(remedy.measured)))
        behind_it.append([name(remedy.title), _cell(wording.times_between(worth)), pedigree])
    lead = el("p", _WHAT_IF, class_="lead")
    chart = plots.chart(
        rows, scale, axis="of today's throughput", ticks=[f"{wording.number(round(tick, 6))}x" for tick in scale.ticks]
    )
    made = table("What if", ("If", "Throughput", "How known"), behind_it)
    return join((lead, _figure("What a free stage or a remedy would win", chart, behind("These figures as a table", made))))


def _gain_row(label: Markup, gain: Interval, scale: plots.Scale, class_: str, title: str, how: str) -> PlotRow:
    shapes = join((plots.bar(scale, gain, base=1.0, class_=class_), plots.baseline(scale, 1.0)))
    figure, _, rest = wording.times_between(gain).partition(" ")
    said = join((el("b", figure), " ", el("span", f"{rest} {how}".strip(), class_="interval")))
    return PlotRow(label=label, said=said, shapes=shapes, title=title)


# -- arms ------------------------------------------------------------------------------------------------------------


ARMS = {
    "real": "as it is",
    "plain": "as it is, without clocks",
    "real-cold": "as it is, files not in memory",
    "no-consumer": "without the step",
    "consumer-alone": "the step alone",
    "consumer-resident": "the step, its batch on the device",
    "cached-beside-burner": "the step, the CPUs kept as busy",
    "storage-from-memory": "storage free",
    "decode-recorded": "decode free",
    "augment-recorded": "augment free",
    "collate-recorded": "collate free",
    "handover-skipped": "hand-over free",
    "decoded-recorded": "samples stored decoded",
    "samples-recorded": "samples stored finished",
    "batch-prebuilt": "batches ready",
    "loader-floor": "the loader alone, data free",
}
"""What arms try, in words; others are called as they are."""


def arms_figure(run: Run) -> Markup:
    """Every arm with what it tried, the quickest first, against the pipeline as it is without clocks."""
    if not run.arms:
        return Markup("")
    unit = run.throughput.unit if run.throughput is not None else "samples/s"
    rates = [rate for arm in run.arms for rate in arm.rates if wording.known(rate)]
    scale = plots.spanning(rates, base=0.0)
    middles = {arm.name: wording.median(arm.rates) for arm in run.arms}
    untimed = middles.get("plain") or middles.get("real")
    ranked = sorted(run.arms, key=lambda arm: (arm.declined is not None, -(middles[arm.name] or 0.0)))
    rows = [_arm_row(arm, scale, untimed) for arm in ranked]
    chart = plots.chart(rows, scale, axis=unit, ticks=[wording.number(round(tick, 6)) for tick in scale.ticks])
    heads = ("Arm", "Replaced", f"Median ({unit})", "Every block")
    behind_it = table("Arms", heads, [_arm_cells(arm) for arm in ranked])
    lead = (
        "Each dot is one block of the same loader, with the named stages replaced by recordings; the blocks of all arms took "
        "turns. Multiples are of the pipeline as it is, without clocks."
    )
    return join(
        (el("p", lead, class_="lead"), _figure("Rate of every block, by arm", chart, behind("These figures as a table", behind_it)))
    )


def _arm_row(arm: Arm, scale: plots.Scale, untimed: float | None) -> PlotRow:
    words = ARMS.get(arm.name)
    label = join((name(words or arm.name), el("small", name(arm.name if words else ", ".join(arm.replaces) or "nothing replaced"))))
    if arm.declined is not None:
        return PlotRow(label=label, said=Markup(""), note=join(("Declined: ", sentence(arm.declined))))
    values = [rate for rate in arm.rates if wording.known(rate)]
    middle = wording.median(values)
    against = f"{wording.times(middle / untimed)}, " if middle is not None and untimed else ""
    blocks = wording.counted(len(values), "block")
    said = join((el("b", _dash(wording.number(middle))), " ", el("span", against + blocks, class_="interval")))
    title = f"{arm.name}: median {wording.number(middle)} of {blocks}"
    return PlotRow(label=label, said=said, shapes=plots.dots(scale, values, middle), title=title)


def _arm_cells(arm: Arm) -> list[Piece]:
    if arm.declined is not None:
        return [name(arm.name), name(", ".join(arm.replaces)), join(("declined: ", sentence(arm.declined))), ""]
    every = ", ".join(wording.number(rate) for rate in arm.rates)
    return [name(arm.name), name(", ".join(arm.replaces) or "nothing"), _dash(wording.number(wording.median(arm.rates))), every]


# -- samples


def samples_figure(run: Run) -> Markup:
    """How many samples cost how much; empty in files of older versions, which kept only percentiles."""
    tail = run.tail
    if tail is None or len(tail.edges_s) != len(tail.counts) + 1 or not sum(tail.counts):
        return Markup("")
    ends = (wording.seconds(tail.edges_s[end]) for end in (0, -1))
    said = f"What samples cost: {wording.counted(sum(tail.counts), 'sample')}, {' to '.join(ends)}"
    return _figure(f"{said} (logarithmic)", plots.histogram(tail.edges_s, tail.counts, said))


# -- batch by batch --------------------------------------------------------------------------------------------------


def waits_figure(run: Run) -> Markup:
    waits = run.waits
    if waits is None or not waits.wait_s:
        return Markup("")
    pairs = plots.timeline_pairs(waits)
    longest = sorted(range(len(pairs)), key=lambda number: pairs[number][0], reverse=True)[:10]
    rows: list[list[Piece]] = [
        [f"{at + 1:,}", wording.seconds(pairs[at][0]), wording.seconds(pairs[at][1])] for at in sorted(longest)
    ]
    words = "How long the consumer waited for each batch. A loader that keeps up leaves no columns here."
    if any(step > 0 for _, step in pairs):
        words = "How long the consumer waited for each batch (strong), and how long its step then took (pale, on top)."
    if waits.period:
        words += f" Long waits come every {waits.period:,} batches."
    tools = el(
        "div",
        [el("button", sign, type="button", class_="tool", id=f"zoom-{what}", aria_label=said) for sign, what, said in _ZOOM],
        el("output", "Drag to zoom; point at a batch, or use the arrow keys, to read it.", id="t-read", aria_live="polite"),
        class_="t-tools",
    )
    made = table("The ten longest waits, in order", ("Batch", "Wait", "Step"), rows)
    figure = _figure("Wait for each batch", [tools, plots.timeline(waits)], behind("The longest waits as a table", made))
    return join((el("p", words, class_="lead"), figure))


_ZOOM = (("+", "in", "Zoom in"), ("\u2212", "out", "Zoom out"), ("All", "all", "Show all batches"))


# -- operations ------------------------------------------------------------------------------------------------------


def ops_figure(run: Run) -> Markup:
    listed = [(stage, op) for stage in run.stages for op in stage.ops if wording.known(op.wall_s)]
    if not listed:
        return Markup("")
    most = max(op.wall_s for _, op in listed) or 1.0
    totals = {stage.stage: sum(op.wall_s for op in stage.ops if wording.known(op.wall_s)) for stage in run.stages if stage.ops}
    rows = [_ops_row(stage, totals[stage.stage], max(totals.values()) or 1.0) for stage in run.stages if totals.get(stage.stage)]
    ranked = sorted(listed, key=lambda pair: pair[1].wall_s, reverse=True)
    heads = [_sortable(title, number) for number, title in enumerate(("Operation", "Stage", "Wall a sample", "CPU", "Calls"))]
    body = [_op_cells(stage, op, most, totals[stage.stage]) for stage, op in ranked]
    made = el("table", el("caption", "Every operation"), el("thead", el("tr", heads)), el("tbody", body), class_="sortable")
    lead = el(
        "p",
        "Own time a sample: what an operation calls is counted under its own name. Select a column's head to sort by it.",
        class_="lead",
    )
    chart = plots.chart(rows, plots.Scale(0.0, max(totals.values()) or 1.0), axis="", ticks=_ops_ticks(max(totals.values()) or 1.0))
    framed = el("div", made, class_="scroll", tabindex=0, role="region", aria_label="Table: Every operation")
    return join((lead, _figure("Operations within their stages", [chart, framed])))


def _ops_ticks(most: float) -> list[str]:
    return [wording.seconds(tick) for tick in plots.Scale(0.0, most).ticks]


def _ops_row(stage: StageFigures, total: float, most: float) -> PlotRow:
    ranked = sorted((op for op in stage.ops if wording.known(op.wall_s)), key=lambda op: op.wall_s, reverse=True)
    at, drawn = 0.0, []
    for number, op in enumerate(ranked):
        width = op.wall_s / most * 100
        words = f"{op.name}: {wording.seconds(op.wall_s)}, {wording.percent(op.wall_s / total)} of {stage.stage}"
        drawn.append(plots.segment(at, width, f"{hue(stage.stage)} tint-{min(number, 3)}", words))
        at += width
    said = join((el("b", wording.seconds(total)), " ", el("span", wording.counted(len(ranked), "operation"), class_="interval")))
    return PlotRow(label=name(stage.stage), said=said, shapes=join(drawn))


def _sortable(title: str, number: int) -> Markup:
    sort = "descending" if number == 2 else "none"
    return el("th", el("button", title, type="button", class_="sort"), scope="col", aria_sort=sort)


def _op_cells(stage: StageFigures, op: OpFigures, most: float, total: float) -> Markup:
    part = wording.percent(op.wall_s / total) if total else _DASH
    bar = plots.stacked([BarPart(op.wall_s, hue(stage.stage), "")], most, height=6, label=None)
    calls = wording.calls(op.calls) or "1 call"
    cpu = op.cpu_s if op.cpu_s is not None and wording.known(op.cpu_s) else None
    note = el("small", "Cannot be cut further: ", sentence(op.opaque)) if op.opaque else None
    return el(
        "tr",
        el("th", name(op.name), note, scope="row", data_sort=op.name),
        el("td", name(stage.stage), data_sort=stage.stage),
        el(
            "td",
            wording.seconds(op.wall_s),
            " ",
            el("span", f"{part} of {stage.stage}", class_="interval"),
            bar,
            data_sort=op.wall_s,
        ),
        el("td", _dash(wording.seconds(cpu)), data_sort=-1.0 if cpu is None else cpu),
        el("td", calls, data_sort=op.calls if wording.known(op.calls) else -1.0),
    )
