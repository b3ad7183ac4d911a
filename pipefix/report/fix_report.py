"""The document of ``pipefix fix``: what was kept and what it brought, what was left alone and why, stages before and after."""

from __future__ import annotations

from collections.abc import Iterator

from pipefix.fixes.outcome import Applied, Fixed, Refused, Undone
from pipefix.report.document import (
    Bar,
    BarPart,
    Block,
    CommandLine,
    Document,
    Field,
    Item,
    Items,
    Paragraph,
    chart,
    field,
    filled,
    sentence,
    untitled,
)
from pipefix.report.runfile import Run, encode
from pipefix.report.shown import Shown
from pipefix.report.stage_table import side_by_side
from pipefix.vocabulary import quantity
from pipefix.vocabulary.commands import made_in_program, undone_by, with_plan
from pipefix.vocabulary.version import VERSION


def report(fixed: Fixed, before: Run | None = None, after: Run | None = None, *, page: str | None = None) -> Document:
    """``before`` and ``after``: what was probed; ``page``: where the page lies that was written of this."""
    ahead = [Items([_ahead(step) for step in fixed.ahead], numbered=True)] if fixed.ahead else []
    return Document(
        command="pipefix fix", target=fixed.target + (" --dry-run" if fixed.dry else ""), version=VERSION,
        kind="good" if fixed.applied else "warn", card=list(_card(fixed, after, page)), card_last=True, tiles=_tiles(fixed),
        data=encode(after) if after is not None else "{}",
        sections=filled(
            ("Kept", [Items([_kept(step) for step in fixed.applied])] if fixed.applied else [], ""),
            ("Would be tried, in this order", ahead, ""),
            ("Left alone, and why", [Items([_left(step) for step in fixed.refused])] if fixed.refused else [], ""),
            ("Before and after", side_by_side(before, after), "page"),
            ("From before to after", _waterfall(fixed, after), "page"),
            ("Predicted and measured", _gains(fixed), "page"),
        ),
    )  # fmt: skip


def _card(fixed: Fixed, after: Run | None, page: str | None) -> Iterator[Field]:
    yield field("RESULT", result(fixed), "strong")
    if not fixed.applied and after is not None and after.verdict is not None:
        yield field("VERDICT", after.verdict.sentence)
    if fixed.same is not None:
        yield field("SAMPLES", _capital(fixed.same.sentence))
    if fixed.stopped:
        yield field("STOPPED", _capital(fixed.stopped))
    notes = [f"{path} is no longer read; only --undo needs it. Remove it to have its room." for path in fixed.no_longer_read]
    if notes or fixed.left_alone:
        yield Field("NOTE", [Paragraph(note) for note in (*notes, *fixed.left_alone)])
    if fixed.plan is not None and not fixed.dry:
        in_program = made_in_program(fixed.target)
        argument, others = ("--plan", "") if in_program else ("plan=...", "... are the arguments of your DataLoader. ")
        use = CommandLine(with_plan(fixed.plan, fixed.target, fixed.program))
        without = Paragraph(f"{others}Without {argument} it runs as before. To take the last step back:")
        yield Field("USE", [use, without, CommandLine(undone_by(fixed.folder))])
    if page is not None:
        yield field("REPORT", page)


def result(fixed: Fixed) -> str:
    """What a person reads first."""
    if fixed.dry:
        count = len(fixed.ahead)
        return f"{quantity.counted(count, 'step')} would be tried, in this order." if count else "Nothing would be tried."
    if not fixed.applied:
        return "Nothing was changed." if not fixed.interrupted else "Interrupted: nothing was changed."
    steps = quantity.counted(len(fixed.applied), "step")
    if fixed.total is None:
        return f"{steps} kept; interrupted before the whole was measured."
    saves = fixed.saved_s is not None and fixed.saved_s > 0
    saved = f", and saves {quantity.seconds(fixed.saved_s)} of each epoch" if saves else ""
    rates = f"{quantity.rate(fixed.total.before.value)} -> {quantity.rate(fixed.total.after.value)}"
    whole = " (starts of epochs counted in)" if fixed.total.epochs else ""
    than, now = (" as without the plan", " now") if fixed.went_on else ("", "")
    speed = f"{quantity.times_between(fixed.total.gain)} as fast{than}: {rates}{whole}"
    return f"{speed}{saved}. {steps} kept{now}, predicted to bring {quantity.times(fixed.promised)} together."


def _tiles(fixed: Fixed) -> list[tuple[str, str]]:
    if fixed.total is None:
        return []
    saved = [("saved of each epoch", quantity.seconds(fixed.saved_s))] if fixed.saved_s is not None else []
    rates = [("before", quantity.rate_between(fixed.total.before)), ("after", quantity.rate_between(fixed.total.after))]
    return [*rates, ("gain", quantity.times_between(fixed.total.gain)), *saved]


def _kept(step: Applied) -> Item:
    measured = quantity.times_between(step.measured.gain)
    held = f" ({quantity.percent(step.held)} of that gain)" if step.held is not None else ""
    predicted = f"{quantity.times_between(step.predicted)} predicted{held}"
    blocks = [
        Paragraph(
            f"{step.id}: {measured} measured, {predicted}, over {quantity.counted(step.measured.pairs, 'pair')} of runs in turn."
        ),
        Paragraph(f"samples: {step.same.sentence}"),
    ]
    if step.makes is not None:
        blocks.append(Paragraph(f"{step.makes}: {quantity.size(step.disk_bytes)}, made in {quantity.seconds(step.seconds)}"))
    return Item(text=sentence(step.title), figure=f"{measured} measured", certain=True, blocks=list(blocks))


def _ahead(step: Refused) -> Item:
    asked = [Paragraph(f"{step.why}: asked before, or --yes")] if step.why else []
    worth = f"{quantity.times_between(step.predicted)} predicted"
    return Item(text=f"{step.id}: {_capital(step.title)}", figure=worth, blocks=[*asked])


def _left(step: Refused) -> Item:
    hand = [Paragraph(f"by hand: {step.command}", "to-do")] if step.command else []
    figure = f"{quantity.times_between(step.measured.gain)} measured" if step.measured is not None else ""
    return Item(text=f"{step.id}: {step.why}", style="soft", figure=figure, certain=bool(figure), blocks=[*hand])


def _waterfall(fixed: Fixed, after: Run | None) -> list[Block]:
    """The rate as each kept step raised it, and what the consumer could take: the ceiling."""
    if fixed.total is None or not fixed.applied:
        return []
    rate = fixed.total.before.value
    rows = [("before", 0.0, rate, "none")]
    if fixed.went_on:
        rate = fixed.applied[0].measured.before.value
        rows.append(("with the plan that was there", 0.0, rate, "none"))
    for step in fixed.applied:
        rows.append((step.id, rate, rate * step.measured.gain.value, step.stage))
        rate = rows[-1][2]
    rows.append(("after, both run in turn", 0.0, fixed.total.after.value, "augment"))
    demand = quantity.usable(after.throughput.demand) if after is not None and after.throughput is not None else None
    if demand is not None:
        rows.append(("the consumer could take", 0.0, demand.value, "none"))
    bars = []
    for label, begin, end, stage in rows:
        text = quantity.rate(end) if not begin else f"{quantity.number(begin)} to {quantity.rate(end)}"
        bars.append(Bar(cells=[label, text], parts=[BarPart(min(begin, end), max(begin, end), stage, text)], title=text))
    lead = "What each kept step added, as it was measured when it was kept."
    return [Paragraph(lead, "soft"), chart(["step", "rate"], bars, "lr", "What each kept step added")]


def _gains(fixed: Fixed) -> list[Block]:
    bars = []
    for step in fixed.outcomes:
        if step.predicted is None or step.measured is None:
            continue
        for how, gain in (("predicted", step.predicted), ("measured", step.measured.gain)):
            cells = [f"{step.id}, {how}", quantity.times_between(gain)]
            bars.append(Bar(cells=cells, value=gain, stage=step.stage, modelled=how == "predicted", title=": ".join(cells)))
    if not bars:
        return []
    lead = "Each step's gain over the pipeline as it was before that step; pale bars are predictions."
    return [Paragraph(lead, "soft"), chart(["step", "times the throughput"], bars, "lr", "Gains", start=1.0)]


class ShownUndone(Shown, Undone, frozen=True, kw_only=True):
    """One step taken back."""

    def document(self, *, full: bool = False) -> Document:
        return Document(target=self.folder, sections=[untitled(Paragraph(_undone(self)))])


def _undone(undo: Undone) -> str:
    step = f"Step {undo.step}{f' ({undo.id})' if undo.id else ''}"
    if undo.finished:
        words = f"{step} is taken back."
    elif undo.step:
        words = f"{step} was not in effect: the plan is already what it was before it."
    else:
        words = "No step was taken back: caches lay there that no plan names, such as an interrupted run leaves."
    if undo.removed:
        words += f" Removed: {', '.join(undo.removed)}."
    if undo.finished and undo.plan is None:
        words += " No plan is left: the loader runs as your code has it."
    elif undo.finished:
        words += f" {undo.plan} holds what was there before it, to the letter."
    if undo.kept_as is not None:
        words += f" The plan as it was, with what you edited in it, is kept as {undo.kept_as}."
    return " ".join([words, *undo.left_alone])


def _capital(text: str) -> str:
    return sentence(text[:1].upper() + text[1:])
