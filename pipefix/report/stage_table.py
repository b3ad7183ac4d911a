"""The tables behind a run's verdict: seconds by stage, samples in flight, the longest waits, start-up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from pipefix.report import descriptions
from pipefix.report.document import Bar, BarPart, Bars, Block, Paragraph, Table, Timeline, chart, sentence
from pipefix.report.runfile import GainFigures, Run, StageFigures
from pipefix.vocabulary import quantity
from pipefix.vocabulary.nvml import in_words

COLUMNS_OF_TIMELINE = 400
SHOWN = 0.02
"""Part of the time from which on the sampler has a row of its own."""


def stages(run: Run) -> list[Block]:
    """The table and its chart; nothing where no stage was measured."""
    if not run.stages:
        return []
    bars = [_stage(stage, run) for stage in run.stages]
    left, sampling = unattributed_share(run), _sampler_share(run)
    total, rest = quantity.usable(run.sample_s), run.unattributed_s
    if sampling and total is not None and rest is not None:
        rest = max(0.0, rest - sampling * total.value)
        takes, free = quantity.seconds_between(run.sampler_s), dash(if_free(run.sampler_gain))
        cells = ["sampler", quantity.percent(sampling), takes, "-", "-", free]
        bars.append(Bar(cells=cells, value=quantity.exactly(sampling), stage="none", title="The sampler, in the training process"))
        left = (left or 0.0) - sampling
    cells = ["unattributed", dash(quantity.percent(left)), dash(quantity.seconds(rest)), "-", "-", "-"]
    bars.append(Bar(cells=cells, value=quantity.exactly(left or 0.0), stage="none", title="What belongs to no stage"))
    if total is not None:
        parts = list(_together(run, sampling, left))
        cells = ["delivered", "-", quantity.seconds_between(total), "-", "-", "-"]
        bars.append(Bar(cells=cells, value=None if parts else quantity.exactly(0.0), parts=parts, title="All stages together"))
    columns = ["stage", "share", "wall/sample", "CPU", "bytes", "if it were free"]
    drawn = chart(columns, bars, "lrrrrr", "Stages", ["bytes", "CPU", "if it were free"], inline=True)
    lead = [f"One sample is delivered every {quantity.seconds_between(total)}."] if total is not None else []
    if any(stage.hidden for stage in run.stages):
        lead.append("A hidden stage runs beside something slower and costs nothing now.")
    return [drawn, *([Paragraph(" ".join(lead), "soft")] if lead else [])]


def _stage(stage: StageFigures, run: Run) -> Bar:
    if stage.declined is not None:
        return Bar(cells=[stage.stage], note=f"declined: {stage.declined}")
    share = share_interval(stage)
    cpu, percent = quantity.seconds(stage.cpu_s.value if stage.cpu_s else None), quantity.percent(stage.share)
    figures = (percent, quantity.seconds_between(stage.wall_s), cpu, quantity.size(stage.bytes), if_free(stage.marginal_gain))
    cells = [stage.stage, *map(dash, figures if not stage.hidden else ("hidden", *figures[1:]))]
    marked = run.verdict is not None and stage.stage == run.verdict.stage
    title = f"{stage.stage}: {quantity.percent_between(share) if share is not None else cells[1]}"
    return Bar(cells=cells, value=share or quantity.exactly(0.0), stage=stage.stage, marked=marked, title=title)


def _together(run: Run, sampling: float, left: float | None) -> Iterator[BarPart]:
    """The whole of a sample's delivered time in its parts, one behind the other."""
    at = 0.0
    shares = [(stage.stage, share.value) for stage in run.stages if (share := share_interval(stage)) is not None]
    for name, part in [*shares, ("sampler", sampling), ("unattributed", left or 0.0)]:
        if 0 < part < 2:
            kind = "none" if name in ("sampler", "unattributed") else name
            yield BarPart(at, at + part, kind, f"{name}: {quantity.percent(part)}")
            at += part


def share_interval(stage: StageFigures) -> quantity.Interval | None:
    """The share with the wall clock's relative interval around it; None where it costs nothing now, or is not known."""
    if stage.hidden or stage.share is None or not quantity.known(stage.share):
        return None
    wall = quantity.usable(stage.wall_s)
    if wall is None or wall.value <= 0:
        return quantity.exactly(stage.share)
    return quantity.Interval(stage.share, stage.share * wall.low / wall.value, stage.share * wall.high / wall.value)


def if_free(gain: GainFigures | None) -> str:
    """What a free stage would win: measured, or at most what its part of the time leaves where no arm ran."""
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


def dash(text: str) -> str:
    """In the place of a figure that is not known."""
    return "-" if text == quantity.UNKNOWN else text


_ONE_SCALE = "Seconds of a delivered sample by stage, from left to right; a stage that runs beside something slower is left out."


def side_by_side(before: Run | None, after: Run | None) -> list[Block]:
    """The stages of two runs drawn to one scale, with a table behind."""
    given = [(label, run) for label, run in (("before", before), ("after", after)) if run is not None]
    runs = [(label, run, stages) for label, run in given if (stages := _stage_seconds(run))]
    if not runs:
        return []
    names = list(dict.fromkeys(stage.stage for _, run, _ in runs for stage in run.stages))
    bars = []
    for label, _, stages in runs:
        parts, at = [], 0.0
        for stage, value in stages:
            parts.append(BarPart(at, at + value, stage, f"{stage}: {quantity.seconds(value)}"))
            at += value
        stages_in_words = ", ".join(part.title for part in parts)  # a colour alone names nothing
        bars.append(Bar(cells=[label, f"{quantity.seconds(at)} a sample", stages_in_words], parts=parts, title=label))
    rows = [[name, *(_clock(run, name) for _, run, _ in runs)] for name in names]
    heads = ["stage, wall a sample", *(label for label, _, _ in runs)]
    table = Table(heads, [row for row in rows if any(row[1:])], "lrr", caption="Stages before and after")
    return [Paragraph(_ONE_SCALE, "soft"), Bars(table=table, bars=bars)]


def _stage_seconds(run: Run) -> list[tuple[str, float]]:
    """What each stage takes of a delivered sample's time."""
    whole = quantity.usable(run.sample_s)
    shares = [(stage.stage, share_interval(stage)) for stage in run.stages] if whole is not None else []
    return [
        (name, share.value * whole.value) for name, share in shares if whole is not None and share is not None and share.value > 0
    ]


def _clock(run: Run, name: str) -> str:
    stage = next((stage for stage in run.stages if stage.stage == name), None)
    if stage is None or quantity.usable(stage.wall_s) is None:
        return ""
    return quantity.seconds_between(stage.wall_s) + (", hidden" if stage.hidden else "")


def flow(run: Run) -> list[tuple[str, str]]:
    rows = []
    if run.throughput is not None:
        rows.append(("delivered", quantity.rate_between(run.throughput.delivered, run.throughput.unit)))
        if run.throughput.demand is not None:
            rows.append(("the consumer could take", quantity.rate_between(run.throughput.demand, run.throughput.unit)))
    if run.waits is not None and quantity.known(run.waits.fed):
        apart = f"; the loader's own {quantity.seconds(run.waits.loader_s)} a batch apart" if run.waits.loader_s else ""
        rows.append(("fed", f"{quantity.percent(run.waits.fed)} of the loop's time{apart}"))
    rows += _start_and_tails(run)
    driver = in_words(descriptions.while_measured(run), "nvml_")
    cold = descriptions.cold_sentence(run)
    return rows + [(label, text) for label, text in (("the GPU, says its driver", driver), ("cold storage", cold)) if text]


def _start_and_tails(run: Run) -> Iterator[tuple[str, str]]:
    if run.startup is not None:
        named = {"first batch": run.startup.first_batch_s, "next epoch's first batch": run.startup.epoch_restart_s}
        phrases = [f"{name} after {quantity.seconds(value)}" for name, value in named.items() if quantity.known(value)]
        if quantity.known(run.startup.load_target_s):
            phrases.append(f"loading the target took {quantity.seconds(run.startup.load_target_s)}")
        if phrases:
            yield "start-up", "; ".join(phrases)
    if run.tail is not None:
        tail = run.tail
        named = {"p50": tail.p50_s, "p95": tail.p95_s, "p99": tail.p99_s, "slowest": tail.max_s}
        phrases = [f"{name} {quantity.seconds(value)}" for name, value in named.items()]
        yield "a sample's cost", f"{', '.join(phrases)} (of {quantity.counted(tail.samples, 'sample')})"
        if quantity.known(tail.head_of_line_s) and tail.head_of_line_s:
            waited = quantity.seconds(tail.head_of_line_s)
            yield "out-of-order wait", f"{waited} a sample spent ready behind an unfinished earlier batch"
    phrases = descriptions.step_phrases(run)
    if phrases:
        yield "a step", f"{', '.join(phrases)} a batch"


def waits(run: Run) -> list[Block]:
    """How long the consumer waited for each batch; of many batches, the longest waits of neighbours."""
    waits = run.waits
    if waits is None or not waits.wait_s:
        return []

    def amount(value: float) -> float:
        return value if quantity.known(value) and 0 < value < 1e9 else 0.0

    count = len(waits.wait_s)
    took = list(zip_longest(map(amount, waits.wait_s), map(amount, waits.step_s[:count]), fillvalue=0.0))
    size = -(-count // COLUMNS_OF_TIMELINE)
    longest = [max(range(at, min(at + size, count)), key=lambda place: took[place][0]) for at in range(0, count, size)]
    columns = [took[place] for place in longest]
    titles = [f"batch {place + 1:,}: waited {quantity.seconds(took[place][0])}" for place in longest] if size == 1 else []
    words = "How long the consumer waited for each batch. A loader that keeps up leaves no columns here."
    if any(step > 0 for _, step in columns):
        words = "How long the consumer waited for each batch (strong), and how long its step then took (pale, on top)."
    ranked = sorted(range(count), key=lambda place: took[place][0], reverse=True)[:10]
    rows = [[f"{place + 1:,}", *map(quantity.seconds, took[place])] for place in sorted(ranked)]
    top = quantity.seconds(max(sum(column) for column in columns))
    drawn = Timeline(columns=columns, titles=titles, top=top, ends=["batch 1", f"batch {count:,}"], title="Wait for each batch")
    table = Table(["batch", "wait", "step"], rows, "lrr", caption="The ten longest waits, in order")
    return [Paragraph(words, "soft"), drawn, table]


def samples(run: Run) -> list[Block]:
    """How many samples cost how much; empty in files of older versions, which kept only percentiles."""
    tail = run.tail
    if tail is None or len(tail.edges_s) != len(tail.counts) + 1 or sum(tail.counts) <= 0 or min(tail.counts) < 0:
        return []
    edges = [quantity.seconds(edge) for edge in tail.edges_s]
    titles = [f"{edges[at]} to {edges[at + 1]}: {quantity.counted(count, 'sample')}" for at, count in enumerate(tail.counts)]
    title = f"{quantity.counted(sum(tail.counts), 'sample')}, {edges[0]} to {edges[-1]} (logarithmic)"
    top = quantity.counted(max(tail.counts), "sample")
    columns = [(float(min(count, 10**15)), 0.0) for count in tail.counts]
    return [Timeline(columns=columns, titles=titles, top=top, ends=[edges[0], edges[len(edges) // 2], edges[-1]], title=title)]


def instrument(run: Run) -> list[tuple[str, str]]:
    rows = []
    if run.instrument is not None:
        tool = run.instrument
        rows = [
            ("the probe took", quantity.seconds(tool.seconds)),
            ("a timed call costs", quantity.seconds(tool.seam_cost_s)),
            ("measuring takes of a batch, left out everywhere", quantity.seconds(tool.harness_s)),
            ("timed calls a sample", quantity.number(tool.seams_per_sample)),
            ("a sample with clocks, over one without", quantity.times(tool.slowdown)),
            ("peak memory", quantity.size(tool.peak_rss_bytes)),
            ("recordings", quantity.size(tool.recording_bytes)),
        ]
    if run.verdict is not None and run.verdict.rule:
        rows.append(("the rule that decided", sentence(run.verdict.rule)))
    return [(label, text) for label, text in rows if text != quantity.UNKNOWN]
