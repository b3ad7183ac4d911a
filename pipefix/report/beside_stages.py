"""The sections of a probe's report beside its stages: rates, start-up, tails, the wait for each batch, cost of measuring."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from pipefix.report import descriptions
from pipefix.report.document import Block, Paragraph, Table, Timeline, sentence
from pipefix.report.runfile import Run
from pipefix.vocabulary import quantity
from pipefix.vocabulary.nvml import in_words

COLUMNS_OF_TIMELINE = 400


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
