"""The verdict on a program's loop that trains, from the clocks around its loops alone. Pure."""

from __future__ import annotations

import msgspec

from pipefix.report.program_figures import LoopFigures, ProgramFigures
from pipefix.report.runfile import EVALUATION_WAITS, Verdict
from pipefix.vocabulary.quantity import Interval, counted, percent, percent_between, seconds
from pipefix.vocabulary.worker_exit import signal_name

WAITING = 0.10
"""Share of its time above which a loop that waits is input-bound."""
FED = 0.05
"""Share below which it is step-bound."""
HALF = 0.5
"""Share below which waits are not most of the time, so that it is said what is gained without them."""
LARGE = 0.05
"""Part of the program's time from which it is named beside a verdict that it is not the data."""
FIRST_BATCH = "most of it for the first batch"
WITHOUT_WAITS = "without waits it would be"
"""Said by clocks of waits that are less than half of the time."""
SHARES = "not the only one worth work"
"""Said by experiments of a step that is the largest part, and not all of it (`pipefix/diagnosis/sentences.py`)."""
MOSTLY = {
    "storage": "reading, or waiting in the dataset's own code",
    "decode": "decoding, or own code on what was read",
    "augment": "augmentation, or own code on what was decoded",
    "own": "code of the dataset's own that belongs to no stage",
    "collate": "collating",
}
"""What a stage's part may be: looks know of the user's own code only between which calls it stands."""


_RULE = f"from clocks: input-bound where it surely waits {percent(WAITING)} or more, step-bound where surely {percent(FED)} or less"


def clock_verdict(program: ProgramFigures) -> Verdict:
    """On the loop that trains, of the rank that waits most; from clocks alone."""
    training = [loop for loop in program.loops if loop.role == "training"]
    ahead = next((loop for loop in program.loops if loop.role == "unknown" and loop.step_split.get("optimizer_s")), None)
    if not training and ahead is not None:
        unseen = "are taken ahead in a thread: what training waits for is not seen."
        return _inconclusive(f"Batches of the loader made at {ahead.loader} {unseen}")
    if not program.loops and (program.exit_code or program.at_limit):
        code, before = program.exit_code or 0, "before it took a batch of a DataLoader"
        if program.at_limit:
            return _inconclusive(f"--seconds ended the program {before}; give it more of them.")
        if code < 0:
            return _inconclusive(f"The program was ended by signal {signal_name(-code)} {before}.")
        return _inconclusive(f"The program failed {before}; what it printed itself, above this, says why.")
    if not training:
        none = "No loop of the program took optimizer steps or called backward(), so nothing says which of its loops trains."
        return _inconclusive(f"{none}{_longest(program)}")
    longest = max(training, key=lambda loop: loop.seconds)
    if longest.wait_share is None:
        # Another rank may go through the loader for all, as with Accelerate's ``dispatch_batches`` (its default for streams).
        others = [loop for loop in training if loop.rank != longest.rank and loop.wait_share is not None]
        longest = max((loop for loop in others if loop.steps >= longest.steps / 2), key=lambda loop: loop.seconds, default=longest)
    if longest.in_turn:
        together = [loop for loop in training if loop is longest or (loop.rank == longest.rank and loop.named in longest.in_turn)]
        return _in_turn(program, together)
    if longest.wait_share is None:
        return _without_loader(longest.outside_share)
    # The same loop of another rank, perhaps; an attempt that was over early, as of a job that was started again, says nothing.
    alike = [loop for loop in training if loop.named == longest.named and loop.seconds >= longest.seconds / 2]
    shares = [(loop.wait_share, loop) for loop in alike if loop.wait_share is not None]
    share, loop = max(shares, key=lambda pair: pair[0].value)
    who = f"the loop over the loader made at {loop.loader}{_rank(loop, program)}"
    clause = f"{who} waited for batches in {_in_words(share)} of its time"
    if sum(loop.first_batch_s) > share.value * loop.seconds / 2 > 0:
        clause += f", {FIRST_BATCH} of {'an epoch' if len(loop.first_batch_s) > 1 else 'its only epoch'}"
    if loop.by_device:
        clause += ", by what its device idled meanwhile"
    elif program.cuda:
        clause += ", by the CPU's clocks, which do not see what the GPU still had to do"
    return _judged(share, clause, program, [loop], made_of=_made_of(loop))


def _judged(share: Interval, clause: str, program: ProgramFigures, loops: list[LoopFigures], *, made_of: str) -> Verdict:
    """``loops``: that it is about."""
    evaluated = _evaluation_waits(loops, program)
    if share.low >= WAITING:
        gain = f"; {WITHOUT_WAITS} {1 / (1 - share.value):.2f}x as fast" if share.value < HALF else ""
        sentence = f"Input-bound: {clause}{gain}.{made_of}{_other_lines(loops, program, above=share.value)}{evaluated}"
        return Verdict(kind="input-bound", stage=None, sentence=sentence, confidence=1.0, rule=_RULE)
    others = _other_lines(loops, program)
    if share.high <= FED:
        sentence = f"Not the data: {clause}; nothing to gain there.{others}{_besides_training(program)}{evaluated}"
        return Verdict(kind="step-bound", stage="step", sentence=sentence, confidence=1.0, rule=_RULE)
    if (share.low >= FED and share.high <= 2 * WAITING) or share.high <= WAITING:
        sentence = f"Balanced: {clause}.{others}{evaluated}"
        return Verdict(kind="balanced", stage=None, sentence=sentence, confidence=1.0, rule=_RULE)
    return _inconclusive(f"{clause}, and that is too {'wide a range' if share.high < 1 else 'short'} for a verdict.")


def _in_words(share: Interval) -> str:
    """Without the range where it has no upper end."""
    return percent_between(share) if share.high < 1 else percent(share.value)


def _longest(program: ProgramFigures) -> str:
    """What the longest loop waited, where none is known to train: it may predict, or train by gradients that it asks for itself."""
    loop = max((loop for loop in program.loops if loop.wait_share is not None), key=lambda loop: loop.seconds, default=None)
    if loop is None or loop.wait_share is None:
        return ""
    return f" The longest, over the loader made at {loop.loader}, waited for batches in {_in_words(loop.wait_share)} of its time."


def _in_turn(program: ProgramFigures, loops: list[LoopFigures]) -> Verdict:
    """On loops whose batches the same steps work on: the step waits for each of them, so what they waited counts together."""
    together = sum(loop.seconds for loop in loops) or 1.0
    shares = [(loop.wait_share or Interval(0.0, 0.0, 1.0), loop.seconds / together) for loop in loops]
    share = Interval(*(sum(getattr(share, end) * part for share, part in shares) for end in ("value", "low", "high")))
    alike = len({loop.loader for loop in loops}) < len(loops)
    names = [loop.named if alike else loop.loader for loop in loops]
    waited = [f"{name} {percent(share.value * part)}" for name, (share, part) in zip(names, shares, strict=True)]
    clause = f"its steps take batches of {len(loops)} loaders in turn, and waited for them in {percent_between(share)} of the time"
    clause += f"{_rank(loops[0], program)}: for the one made at {', for the one at '.join(waited)}"
    return _judged(share, clause, program, loops, made_of="")


def _rank(loop: LoopFigures, program: ProgramFigures) -> str:
    return f" (rank {loop.rank} of {program.ranks})" if loop.rank is not None and program.ranks > 1 else ""


def agreed(said: Verdict, clocks: Verdict, lasted: float = 60.0) -> Verdict:
    """The verdict of experiments of ``lasted`` seconds in a program, where the clocks around its loops do not say the opposite.

    A first batch that is waited for long is none of what experiments see, so it is no contradiction, and is told beside. Neither
    are waits of less than half of the time to a step of more.
    """
    if (said.kind, clocks.kind) == ("step-bound", "input-bound") and FIRST_BATCH in clocks.sentence:
        unseen = "That is without first batches of epochs, which experiments leave out"
        waited = clocks.sentence.removeprefix("Input-bound: ")
        return msgspec.structs.replace(said, sentence=f"{said.sentence} {unseen}: {waited}")
    both = SHARES in said.sentence and WITHOUT_WAITS in clocks.sentence
    if {said.kind, clocks.kind} != {"input-bound", "step-bound"} or both:
        _, waits, evaluation = clocks.sentence.partition(f" {EVALUATION_WAITS}")
        return msgspec.structs.replace(said, sentence=f"{said.sentence}{waits}{evaluation}") if waits else said
    contradict = f"experiments and clocks contradict each other. Experiments: {said.sentence} Clocks: {clocks.sentence}"
    longer = "A step may have taken another time while the experiments were made; "
    longer += f"--probe={max(60.0, 3 * lasted):.0f} makes them for longer."
    return _inconclusive(f"{contradict} {longer}")


def _without_loader(outside: Interval | None) -> Verdict:
    """From what passes outside models, backward passes and optimizers' steps: making batches is a part of that."""
    trains = "The program trains without a DataLoader"
    if outside is None:
        return _inconclusive(f"{trains}: what lies between its optimizer steps is not told apart into data and step.")
    part = f"{percent(outside.value)} of its time"
    where = "outside its models, their backward passes and the optimizer's steps"
    if outside.high <= WAITING:
        kind, stage, title = ("step-bound", "step", "Not the data") if outside.high <= FED else ("balanced", None, "Balanced")
        said = f"{title}: the program trains without a DataLoader, and only {part} passes {where}: making batches takes no more."
        rule = f"from clocks: step-bound where surely {percent(FED)} or less passes there, "
        rule += f"balanced where {percent(WAITING)} or less"
        return Verdict(kind=kind, stage=stage, sentence=said, confidence=1.0, rule=rule)
    between = f"({percent(outside.low)} to {percent(outside.high)})"
    apart = "batches are made in it, and logging and checkpoints are; clocks do not tell them apart."
    return _inconclusive(f"{trains}. {part} {between} passes {where}: {apart}")


def _besides_training(program: ProgramFigures) -> str:
    """What else took a large part of the program's time."""
    shares = program.account.shares() if program.account is not None else {}
    others = ("training", "pipefix's experiments", "rest")
    parts = [f"{part} {percent(share)}" for part, share in shares.items() if part not in others and share >= LARGE]
    return f" Of the program's time, besides training: {', '.join(parts)}." if parts else ""


def _evaluation_waits(loops: list[LoopFigures], program: ProgramFigures) -> str:
    """An evaluation that waits for longer than training does, and for a part of the program's time that is worth a word."""
    waits = [(_waited(loop), loop) for loop in program.loops if loop.role == "evaluation"]
    longest, loop = max(waits, key=lambda wait: wait[0], default=(0.0, None))
    trained = sum(map(_waited, loops))
    if loop is None or longest <= max(trained, LARGE * program.seconds):
        return ""
    return f" {EVALUATION_WAITS}: {seconds(longest)}, over the loader made at {loop.named}."


def _other_lines(loops: list[LoopFigures], program: ProgramFigures, *, above: float = WAITING) -> str:
    """What of their time is neither waits nor a part of the step, if more than ``above``: beside a GPU, what it still had to do."""
    known = [loop.step_split for loop in loops]
    if program.cuda or not any(split.get("backward_s") for split in known):
        return ""
    part = sum(split.get("other_s", 0.0) for split in known) / (sum(loop.seconds for loop in loops) or 1.0)
    if part <= above:
        return ""
    lines = "lines of the loop such as logging, metrics or checkpoints, or a device that they wait for"
    return f" {percent(part)} of its time is neither that nor the model, its backward pass or the optimizer: {lines}."


def _made_of(loop: LoopFigures) -> str:
    """The largest part of the making of its batches, where it surely is that."""
    if not loop.stages:
        return ""
    (first, most), *others = sorted(loop.stages.items(), key=lambda pair: -pair[1].value)
    if any(interval.high >= most.low for _, interval in others):
        return ""
    return f" Making them is mostly {MOSTLY[first]}: {percent(most.value)} of it, by a look at {counted(loop.looked, 'batch')}."


def _waited(loop: LoopFigures) -> float:
    return loop.seconds * loop.wait_share.value if loop.wait_share is not None else 0.0


def _inconclusive(sentence: str) -> Verdict:
    return Verdict(kind="inconclusive", stage=None, sentence=f"Inconclusive: {sentence}", confidence=0.0, rule=_RULE)
