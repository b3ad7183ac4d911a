"""What `fix` did, as lines for the terminal: each step with what was predicted and what was measured, and what was left alone."""

from __future__ import annotations

from collections.abc import Iterator

from pipefix.fixes.outcome import Applied, Fixed, Measured, Refused, Sameness, Undone
from pipefix.report import wording
from pipefix.report.columns import Paint, for_terminal
from pipefix.vocabulary.commands import command, with_plan


def how(fixed: Fixed) -> str:
    """How the plan is used."""
    return with_plan(fixed.plan or "", fixed.target)


def back(fixed: Fixed) -> str:
    """What to type to take a step back."""
    return command("pipefix", "fix", "--undo", *(["--out", fixed.folder] if fixed.folder != "." else []))


@for_terminal
def lines(fixed: Fixed, paint: Paint, *, page: str | None = None) -> Iterator[str]:
    yield paint.ink(f"pipefix fix {paint.text(fixed.target)}{' --dry-run' if fixed.dry else ''}", "bold")
    yield paint.rule()
    yield from paint.labelled("RESULT", result(fixed), "bold")
    if fixed.dry:
        yield from _ahead(fixed, paint)
    for one in fixed.applied:
        yield from paint.labelled("KEPT", kept(one))
        yield from paint.item(f"samples: {one.same.sentence}")
        cost = cost_of(one)
        if cost:
            yield from paint.item(cost)
    for refusal in fixed.refused:
        yield from paint.labelled("LEFT", f"{refusal.id}: {refusal.why}", "dim")
        if refusal.command:
            yield from paint.item(f"by hand: {refusal.command}")
    if fixed.same is not None:
        yield from paint.labelled("SAMPLES", samples(fixed.same))
    yield from paint.labelled("STOPPED", _sentence(fixed.stopped))
    for path in fixed.no_longer_read:
        yield from paint.labelled("NOTE", f"{path} is no longer read; only --undo needs it. Remove it to have its room.")
    for sentence in fixed.left_alone:
        yield from paint.labelled("NOTE", sentence)
    if fixed.plan is not None and not fixed.dry:
        yield from paint.labelled("USE", f"{how(fixed)}. Without plan=... it runs as before. The last step back: {back(fixed)}")
    if page is not None:
        yield from paint.labelled("REPORT", page)
    yield paint.rule()


def _ahead(fixed: Fixed, paint: Paint) -> Iterator[str]:
    for number, one in enumerate(fixed.ahead, 1):
        worth = wording.times_between(one.predicted)
        yield from paint.labelled(f"{number}.", f"{one.id}: {_sentence(one.title)} {worth} predicted.")
        if one.why:
            yield from paint.item(f"{one.why}: asked before, or --yes")


def _sentence(text: str) -> str:
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if not text or text[-1] in ".!?" else text + "."


# -- sentences, shared with the page -----------------------------------------------------------------------------------------


def result(fixed: Fixed) -> str:
    """What a person reads first."""
    if fixed.dry:
        count = len(fixed.ahead)
        return f"{wording.counted(count, 'step')} would be tried, in this order." if count else "Nothing would be tried."
    if not fixed.applied:
        return "Nothing was changed." if not fixed.interrupted else "Interrupted: nothing was changed."
    steps = wording.counted(len(fixed.applied), "step")
    if fixed.total is None:
        return f"{steps} kept; interrupted before the whole was measured."
    saved = ""
    if fixed.saved_s is not None and fixed.saved_s > 0:
        saved = f", and saves {wording.seconds(fixed.saved_s)} of each epoch"
    return f"{speed(fixed.total)}{saved}. {steps} kept, predicted to bring {wording.times(fixed.promised)} together."


def speed(measured: Measured) -> str:
    rates = f"{wording.rate(measured.before.value)} -> {wording.rate(measured.after.value)}"
    whole = " (starts of epochs counted in)" if measured.epochs else ""
    return f"{wording.times_between(measured.gain)} as fast: {rates}{whole}"


def kept(one: Applied) -> str:
    return (
        f"{one.id}: {wording.times_between(one.measured.gain)} measured, {wording.times_between(one.predicted)} predicted "
        f"({wording.percent(one.held)} of it), over {one.measured.pairs} pairs of runs in turn."
    )


def cost_of(one: Applied) -> str:
    """What it took."""
    if one.makes is None:
        return ""
    return f"{one.makes}: {wording.size(one.disk_bytes)}, made in {wording.seconds(one.seconds)}"


def samples(same: Sameness) -> str:
    return _sentence(same.sentence)


def tried(one: Refused) -> str:
    return wording.times_between(one.measured.gain) if one.measured is not None else ""


@for_terminal
def undone(found: Undone, paint: Paint) -> Iterator[str]:
    step = f"Step {found.step}{f' ({found.id})' if found.id else ''}"
    if found.finished:
        words = f"{step} is taken back."
    elif found.step:
        words = f"{step} was not in effect: the plan is already what it was before it."
    else:
        words = "No step was taken back: caches lay there that no plan names, such as an interrupted run leaves."
    if found.removed:
        words += f" Removed: {', '.join(found.removed)}."
    if found.finished and found.plan is None:
        words += " No plan is left: the loader runs as your code has it."
    elif found.finished:
        words += f" {found.plan} holds what was there before it, to the letter."
    if found.kept_as is not None:
        words += f" The plan as it was, with what you edited in it, is kept as {found.kept_as}."
    words = " ".join([words, *found.left_alone])
    yield from paint.paragraph(words)
