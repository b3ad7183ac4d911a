"""The document of ``pipefix run``: when a training program's loops ran and waited, what its ranks do, how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from pipefix.report.document import COLOURS, Bar, BarPart, Bars, Block, Document, Paragraph, Section, chart, field
from pipefix.report.program_figures import LoopFigures, ProgramFigures
from pipefix.report.runfile import Run
from pipefix.vocabulary import quantity
from pipefix.vocabulary.commands import command

SMALL = 0.01
"""Part of the making of batches below which a stage is left out."""
ONE_BATCH = 1.2
"""Times the samples of a batch that an optimizer's step is over, from which that is told."""
BETWEEN = 0.05
"""Part of the program's time between epochs from which it is told."""
STARVED = 0.15
"""Part of a loop's time without a CPU from which that is told."""
NOT_PLANNED = "The plan could not be put in place"
"""What begins the error that tells why a program's loader does not follow ``run --plan``."""
NOT_PROBED = "Not probed:"
"""What begins the error that tells why ``run --probe`` made no experiments."""
_CLOCKS = "These are clocks. Experiments in the program show which stage is slow, and what each fix is worth: "


def report(run: Run) -> Document:
    """What was seen of the program, the verdict first."""
    program = run.program
    assert program is not None
    card = []
    if run.verdict is not None and not run.stages:  # else the report of the experiments says it
        card = [field("VERDICT", run.verdict.sentence, f"strong {COLOURS.get(run.verdict.kind, '')}".strip())]
        why_not = [error for error in program.errors if error.startswith(NOT_PROBED)]
        if why_not:
            card.append(field("", why_not[0], "soft"))
            program = msgspec.structs.replace(program, errors=[error for error in program.errors if error not in why_not])
        elif run.verdict.kind == "input-bound":
            card.append(field("", _CLOCKS + experiments_in(program), "soft"))
    return Document(card=card, sections=[section(program)])


def experiments_in(program: ProgramFigures, probe: str = "--probe") -> str:
    """How they are made, with its plan in place; a notebook's kernel (ipykernel's, Colab's) is not started by its user."""
    if any(word.endswith("kernel_launcher.py") for word in program.command[:1]):
        return "pipefix.probe(LOADER, step=TRAINING_STEP)"
    if program.loops and not any(loop.loader and loop.role == "training" for loop in program.loops):
        return "pipefix probe FILE.py:NAME"  # in the program there is no loader that they would be made with
    plan = ["--plan", program.plan] if program.plan else []
    return command("pipefix", "run", probe, *plan, *program.command)


def probe_of(program: ProgramFigures, *options: str) -> str | None:
    """A probe that ends it afterwards, and has more options; None for what only a launcher starts."""
    named = 2 if program.command[:1] == ["-m"] else 1
    if named == 1 and not "".join(program.command[:1]).endswith(".py"):
        return None
    return command("pipefix", "probe", *program.command[:named], *options, "--", *program.command[named:])


def section(program: ProgramFigures, *, only: str = "") -> Section:
    blocks: list[Block] = [_loops(program)] if program.loops else []
    for finding in program.findings:
        blocks += [Paragraph(f"{finding.severity}: {finding.found}", "strong"), Paragraph(finding.advice)]
    return Section(title="The program", blocks=[*blocks, *(Paragraph(text, "soft") for text in notes(program))], only=only)


def _loops(program: ProgramFigures) -> Bars:
    copies = any("copies_s" in loop.step_split for loop in program.loops)  # told apart from the forward pass
    columns = ["loop", "waits", "time", "steps", "first", *(["copies"] if copies else []), "forward", "backward", "optimizer"]
    bars = []
    alike = Counter((loop.loader, loop.rank) for loop in program.loops)
    for loop in program.loops:
        rank = f", rank {loop.rank}" if program.ranks > 1 and loop.rank is not None else ""
        which = loop.named if alike[loop.loader, loop.rank] > 1 else loop.loader
        first = quantity.seconds(max(loop.first_batch_s)) if loop.first_batch_s else ""
        spent = [loop.step_split.get(f"{name}_s", 0.0) for name in columns[5:]]
        parts = [quantity.percent(each / loop.seconds) if each and loop.seconds else "" for each in spent]
        name = f"{loop.role} {which or '(no loader)'}{rank}"
        cells = [name, waits(loop), quantity.seconds(loop.seconds), f"{loop.steps:,}", first, *parts]
        bars.append(Bar(cells=cells, parts=list(_lane(loop)), title=name))
    end = quantity.seconds(max([program.seconds, *(part.end for bar in bars for part in bar.parts)]))
    ends = ("the program begins; above: waiting for batches, below: working on them", end)
    return chart(columns, bars, "l" + "r" * (len(columns) - 1), "Loops over loaders", ["first", "steps"], ends=ends)


def _lane(loop: LoopFigures) -> Iterator[BarPart]:
    for span in loop.timeline:
        if quantity.known(span.begin) and quantity.known(span.end):
            waited = min(1.0, max(0.0, span.waited)) if quantity.known(span.waited) else 0.0
            yield BarPart(span.begin, span.end, "wait", bottom=waited)
            yield BarPart(span.begin, span.end, "step", top=waited)


def waits(loop: LoopFigures) -> str:
    """The share of its time that the loop waited for batches."""
    share = loop.wait_share
    known = share is None or share.low > 0 or share.high < 1
    return quantity.percent_between(share) if known or share is None else f"{quantity.percent(share.value)} (too short)"


def _rank(loop: LoopFigures, program: ProgramFigures) -> str:
    return f" (rank {loop.rank})" if program.ranks > 1 else ""


def notes(program: ProgramFigures) -> Iterator[str]:
    """What there is to say besides, and how the program ended."""
    yield from program.errors
    if not program.loops and not program.errors:
        nothing_seen = "No loop over a DataLoader, no optimizer step and no backward pass was seen"
        failed = "failed before that, " if program.exit_code and not program.at_limit else ""
        if program.at_limit or (program.exit_code or 0) < 0:
            failed = "was ended before that, "
        yield (
            f"{nothing_seen}: the program {failed}did not train, trained without PyTorch, or ran in a Python that pipefix does not "
            "enter: one that is started with -I or -E, or that a script gives a PYTHONPATH without $PYTHONPATH in it. There, put "
            "import pipefix.auto at the top of the program."
        )
    for loop in program.loops:
        if loop.stages:
            parts = ", ".join(f"{name} {quantity.percent(part.value)}" for name, part in loop.stages.items() if part.value >= SMALL)
            whose = f"batches of {loop.loader}{_rank(loop, program)}"
            yield f"Making {whose}, by looks at {loop.looked}: {parts}."
    for loop in program.loops:
        starved, workers = loop.starved_share or 0.0, loop.workers_starved_share or 0.0
        if loop.role == "training" and max(starved, workers) >= STARVED:
            its_workers = f", its workers for {quantity.percent(workers)}" if loop.workers else ""
            yield (
                f"CPUs are short: the loop over the loader made at {loop.loader}{_rank(loop, program)} was ready to run and had "
                f"none for {quantity.percent(starved)} of its time{its_workers}. Other programs, a quota, or too many threads and "
                "workers take them; more workers bring nothing then."
            )
    for place, over in {loop.loader: loop for loop in program.loops if loop.step_samples}.items():
        a_batch = over.samples / max(1, over.steps)
        if (over.step_samples or 0) > ONE_BATCH * a_batch:
            where = f" of the loop over the loader made at {place}" if place else ""
            yield f"An optimizer step{where} is over {over.step_samples:,} samples, of all ranks and accumulated batches together."
    for loop in program.loops:
        if loop.role == "training" and loop.between_epochs_s > BETWEEN * program.seconds > 0:
            part = quantity.percent(loop.between_epochs_s / program.seconds)
            where = f"the loop over the loader made at {loop.loader}{_rank(loop, program)}"
            what = "checkpoints, logging, or getting the next epoch ready"
            yield f"{part} of the program's time passed between epochs of {where}, with no loop running: {what}."
    if program.account is not None and program.seconds > 0 and program.loops:
        shares = program.account.shares().items()
        yield f"Its time: {', '.join(f'{part} {quantity.percent(share)}' for part, share in shares if share >= SMALL)}."
    if program.planned:
        yield f"The plan {program.plan} was in place for the loader made at {', '.join(program.planned)}."
    elif program.plan and not any(error.startswith(NOT_PLANNED) for error in program.errors):
        yield f"The plan {program.plan} changed nothing: no DataLoader was made at the line that it was made for."
    if program.killed:
        yield "A process that did not come to its end counts up to what it had noted by then."
    if program.running:
        yield "The program still runs: these are its figures by now."
        return
    if program.exit_code is None:
        known = "it still runs, or pipefix was killed beside it" if program.killed else "the processes that noted it have ended"
        yield f"How the program ended was not seen: {known}."
        return
    ended = f"exit code {program.exit_code}" if program.exit_code >= 0 else f"signal {-program.exit_code}"
    own = f"; noting this took {program.overhead_share * 100:.2f} % of that" if program.overhead_share else ""
    how = f"was ended then, as --seconds or --steps asked ({ended})" if program.at_limit else f"ended with {ended}"
    yield f"The program ran for {quantity.seconds(program.seconds)} and {how}{own}."
