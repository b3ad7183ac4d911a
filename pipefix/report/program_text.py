"""A training program's loops as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from pipefix.report.columns import Paint, for_terminal
from pipefix.report.runfile import LoopFigures, ProgramFigures, Run
from pipefix.vocabulary import quantity
from pipefix.vocabulary.commands import command

_KINDS = {"input-bound": "red", "step-bound": "green", "balanced": "green", "inconclusive": "yellow"}
SMALL = 0.01
"""Part of the making of batches below which a stage is left out."""
ONE_BATCH = 1.2
"""Times the samples of a batch that an optimizer's step is over, from which that is told."""
BETWEEN = 0.05
"""Part of the program's time between epochs from which it is told."""
_CLOCKS = "These are clocks. Which stage is slow, and what each fix is worth, experiments in the program show: "


@for_terminal
def lines(run: Run, paint: Paint) -> Iterator[str]:
    """What was seen of the program, the verdict first."""
    program = run.program
    assert program is not None
    yield paint.rule()
    if run.verdict is not None and not run.stages:  # else the report of the experiments says it
        yield from paint.labelled("VERDICT", run.verdict.sentence, "bold", _KINDS.get(run.verdict.kind, "bold"))
        if run.verdict.kind == "input-bound":
            yield from paint.labelled("", _CLOCKS + command("pipefix", "run", "--probe", *program.command), "dim")
        yield ""
    if program.loops:
        yield from paint.table(rows(program), "l" + "r" * (program.ranks > 1) + "lrrrrrrr" + "r" * _has_copies(program))
        yield ""
    for finding in program.findings:
        yield from paint.paragraph(f"{finding.severity}: {finding.found}", "bold", first="  ")
        yield from paint.paragraph(finding.advice, first=" " * 4)
    if program.findings:
        yield ""
    for sentence in notes(program):
        yield from paint.paragraph(sentence, "dim")


def rows(program: ProgramFigures) -> list[list[str]]:
    """A head, and a row for each loop and rank."""
    ranks, copies = program.ranks > 1, _has_copies(program)
    head = [
        "loop",
        *(("rank",) if ranks else ()),
        "loader",
        "steps",
        "time",
        "waits",
        "first",
        *(("copies",) if copies else ()),
        "forward",
        "backward",
        "optimizer",
    ]
    return [head, *(_row(loop, ranks=ranks, copies=copies) for loop in program.loops)]


def _has_copies(program: ProgramFigures) -> bool:
    """Whether copies to the device are told apart from the forward pass."""
    return any("copies_s" in loop.step_split for loop in program.loops)


def _row(loop: LoopFigures, *, ranks: bool, copies: bool) -> list[str]:
    return [
        loop.role,
        *(("" if loop.rank is None else str(loop.rank),) if ranks else ()),
        loop.loader or "(no loader)",
        f"{loop.steps:,}",
        quantity.seconds(loop.seconds),
        waits(loop),
        quantity.seconds(max(loop.first_batch_s)) if loop.first_batch_s else "",
        *((_part(loop, "copies_s"),) if copies else ()),
        _part(loop, "forward_s"),
        _part(loop, "backward_s"),
        _part(loop, "optimizer_s"),
    ]


def waits(loop: LoopFigures) -> str:
    """The share of its time that the loop waited for batches."""
    share = loop.wait_share
    if share is None:
        return "unknown"
    known = share.low > 0 or share.high < 1
    low, high = (quantity.percent(end).removesuffix(" %") for end in (share.low, share.high))
    return quantity.percent(share.value) + (f" ({low}-{high} %)" if known else " (too short)")


def _part(loop: LoopFigures, name: str) -> str:
    seconds = loop.step_split.get(name, 0.0)
    return quantity.percent(seconds / loop.seconds) if seconds and loop.seconds else ""


def _small(share: float) -> str:
    return f"{share * 100:.2f} %"


def notes(program: ProgramFigures) -> Iterator[str]:
    """What there is to say besides, and how the program ended."""
    yield from program.errors
    if not program.loops and not program.errors:
        seen = "No loop over a DataLoader, no optimizer step and no backward pass was seen"
        yield f"{seen}: the program did not train, or without PyTorch."
    for loop in program.loops:
        if loop.stages:
            parts = ", ".join(f"{name} {quantity.percent(part.value)}" for name, part in loop.stages.items() if part.value >= SMALL)
            whose = f"batches of {loop.loader}" + (f" (rank {loop.rank})" if program.ranks > 1 else "")
            yield f"Making {whose}, by looks at {loop.looked}: {parts}."
    for place, over in {loop.loader: loop for loop in program.loops if loop.step_samples}.items():
        a_batch = over.samples / max(1, over.steps)
        if (over.step_samples or 0) > ONE_BATCH * a_batch:
            where = f" of the loop over the loader made at {place}" if place else ""
            yield f"An optimizer step{where} is over {over.step_samples:,} samples, of all ranks and accumulated batches together."
    for loop in program.loops:
        if loop.role == "train" and loop.between_epochs_s > BETWEEN * program.seconds:
            part = quantity.percent(loop.between_epochs_s / program.seconds)
            where = f"the loop over the loader made at {loop.loader}" + (f" (rank {loop.rank})" if program.ranks > 1 else "")
            yield f"{part} of the program's time passed between epochs of {where}, with no loop running: checkpoints, logging."
    if program.planned:
        yield f"The plan {program.plan} was in place for the loader made at {', '.join(program.planned)}."
    elif program.plan:
        yield f"The plan {program.plan} changed nothing: no DataLoader was made at the line that it was made for."
    if program.killed:
        yield "A process that did not come to its end counts up to what it had noted by then."
    if program.exit_code is None:
        yield "How the program ended was not seen: it still runs, or pipefix was killed beside it."
        return
    ended = f"exit code {program.exit_code}" if program.exit_code >= 0 else f"signal {-program.exit_code}"
    own = f"; noting this took {_small(program.overhead_share)} of that" if program.loops else ""
    yield f"The program ran for {quantity.seconds(program.seconds)} and ended with {ended}{own}."
