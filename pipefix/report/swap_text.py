"""What a swap found, as lines for the terminal: what stays and why, what moves, the wire, and how equal the two sides are."""

from __future__ import annotations

from collections.abc import Iterator

from pipefix.report.columns import Paint, for_terminal
from pipefix.report.swapfile import DrawnFigures, ParityFigures, PixelFigures, SwapReport, WireFigures
from pipefix.vocabulary.quantity import size, times


@for_terminal
def lines(report: SwapReport, paint: Paint) -> Iterator[str]:
    yield paint.ink(f"pipefix swap {paint.text(report.target)} --to {report.to}", "bold")
    yield paint.rule()
    yield from paint.labelled("STAYS", _stays(report))
    for one in report.stays:
        yield from paint.item(f"{one.transform}: {one.why}")
    yield from paint.labelled("MOVES", _moves(report))
    for move in report.moves:
        yield from paint.item(", ".join(move.ops) or f"{move.transform}: nothing is left of it")
    yield from paint.labelled("WIRE", wire(report))
    yield from paint.labelled("GAIN", gain(report))
    for note in report.notes:
        yield from paint.labelled("NOTE", note)
    if report.parity is not None:
        yield paint.rule()
        yield from _parity(report.parity, paint)
    if report.written is not None:
        yield from paint.labelled("WRITTEN", f"{report.written}: the operations, to be edited and imported")
    yield paint.rule()


def _stays(report: SwapReport) -> str:
    if not report.stays:
        return (
            "Nothing stays on the CPU before the batch." if report.to != "dali" else "Nothing: DALI begins with the encoded file."
        )
    return "On the CPU, in the dataset, before samples are collated:"


def _moves(report: SwapReport) -> str:
    if not report.moves:
        return "Nothing can be moved."
    return {
        "kornia": "To the batch, as one module on its device:",
        "tensor": "To the batch, on tensors, with torchvision's own functions:",
        "dali": "To DALI's graph, from encoded bytes to the batch:",
    }[report.to]


def _said(wire: WireFigures) -> str:
    if wire.shape is None:
        return f"{wire.dtype} of any size"
    return f"{size(wire.bytes or 0)} ({wire.dtype} {'x'.join(map(str, wire.shape))})"


def wire(report: SwapReport) -> str:
    """What crosses for one sample, before and after."""
    if report.to == "dali":
        return f"A sample is {_said(report.after)} in the batch; it is made in this process, so nothing crosses between processes."
    before, after = report.before, report.after
    less = ""
    if before.bytes and after.bytes and before.bytes != after.bytes:
        ratio = before.bytes / after.bytes
        less = f": {times(ratio)} less" if ratio > 1 else f": {times(1 / ratio)} more"
    return f"A sample crosses to the training process as {_said(after)} instead of {_said(before)}{less}."


def gain(report: SwapReport) -> str:
    if report.gain is None:
        return report.gain_why
    told = f"{times(report.gain.value)} ({times(report.gain.low)} to {times(report.gain.high)})"
    return f"{told} the throughput is what the probe predicts. {report.gain_why}".strip()


# -- parity ------------------------------------------------------------------------------------------------------------


def verdict(parity: ParityFigures) -> str:
    checked = len(parity.pixels)
    if parity.holds:
        return (
            f"Equal as far as it was checked, on {parity.device}: {checked} operations within 1/255 on average and 4/255 at the "
            f"99th percentile; random ones vary alike (false alarms: {parity.false_alarm:g} a transform)."
        )
    wrong = [one.op for one in parity.pixels if not one.within] + [one.op for one in parity.drawn if not one.alike]
    if parity.whole is not None and not parity.whole.within:
        wrong.append("the whole list")
    return f"Not equal: {', '.join(wrong)}. The figures are below."


def pixels(one: PixelFigures) -> str:
    if not one.worst:
        return "exact"
    return f"mean {one.mean:.3f}, 99 % {one.p99:.2f}, worst {one.worst:.1f} (of 255)"


def drawn(one: DrawnFigures) -> str:
    if one.declined:
        return f"not compared: {one.declined}"
    least = min((parameter.p for parameter in one.parameters), default=1.0)
    figures = f"{len(one.parameters)} figures of {one.count} results, least p {least:.2g}"
    return figures if one.alike else f"{figures}: they vary differently"


def _parity(parity: ParityFigures, paint: Paint) -> Iterator[str]:
    yield from paint.labelled("PARITY", verdict(parity), "bold" if parity.holds else "red")
    rows = [[one.op, pixels(one)] for one in parity.pixels]
    if parity.whole is not None:
        rows.append([parity.whole.op, pixels(parity.whole)])
    yield from paint.table(rows, "ll", indent=9)
    for one in (*parity.pixels, *([parity.whole] if parity.whole else [])):
        if one.note and one.worst:
            yield from paint.item(f"{one.op}: {one.note}.")
    if parity.drawn:
        yield from paint.labelled("DRAWS", "Results of random transforms beside torchvision's own:")
        for draw in parity.drawn:
            yield from paint.item(f"{draw.op}: {drawn(draw)}")
    for declined in parity.declined:
        yield from paint.labelled("UNCHECKED", f"{declined.transform}: {declined.why}", indent=11)
