"""What must hold of every run file and of all that is told from it, whatever was measured."""

from __future__ import annotations

import ast
import inspect
import math
import re
import shlex
import statistics
from collections.abc import Iterator

from torch.utils.data import DataLoader

import pipefix
from pipefix.cli.command import find
from pipefix.cli.parser import parse
from pipefix.report.card import FREE, card
from pipefix.report.page import page
from pipefix.report.probe_report import full
from pipefix.report.runfile import Run, StageFigures
from pipefix.report.terminal import lines
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.gain import FEWEST_RESAMPLED
from pipefix.vocabulary.quantity import Interval, known

OWN_ARM = {
    "storage": "storage-from-memory",
    "decode": "decode-recorded",
    "augment": "augment-recorded",
    "collate": "collate-recorded",
    "ipc": "handover-skipped",
    "step": "no-consumer",
}


def broken(run: Run) -> list[str]:
    """Every promise that this run breaks, in words."""
    ran = {arm.name: len(arm.rates) for arm in run.arms if arm.rates}
    declined = {arm.name: arm.declined or "" for arm in run.arms if arm.declined is not None}
    return [*_measured(run, ran), *_named(run, ran, declined), *_blocks(run, ran), *_open(run), *_adds_up(run), *_proposals(run)]


def _measured(run: Run, ran: dict[str, int]) -> Iterator[str]:
    """Nothing is worded or drawn as measured where no such arm ran."""
    said = card(run)
    told = " ".join([said.verdict, *(sentence for _, sentence in said.why), *said.next])
    drawn = page(full(run))
    shown = "\n".join(lines(full(run), width=160))
    for stage in run.stages:
        if OWN_ARM.get(stage.stage) in ran:
            continue
        if stage.marginal_gain is not None and (stage.marginal_gain.how == "measured" or known(stage.marginal_gain.value)):
            yield f"{stage.stage} has a measured gain, and its arm did not run"
        if FREE[stage.stage] in told:
            yield f"the card says {FREE[stage.stage]!r}, and that arm did not run"
        if f"{stage.stage}: were it free" in drawn:
            yield f"the page draws a bar of {stage.stage} free, and that arm did not run"
        if FREE[stage.stage] in shown:
            yield f"the text says {FREE[stage.stage]!r}, and that arm did not run"


def _named(run: Run, ran: dict[str, int], declined: dict[str, str]) -> Iterator[str]:
    """A stage is named only where its arm ran and gained, or where it can have none."""
    verdict = run.verdict
    if verdict is not None and verdict.kind == "input-bound" and verdict.stage is None and ran.get("sampler-recorded", 0) < 2:
        yield "the sampler is named, and the arm without it did not run twice"
    if verdict is None or verdict.stage is None:
        return
    arm = OWN_ARM.get(verdict.stage, "")
    stage = _figures(run, verdict.stage)
    if verdict.kind == "inconclusive":
        yield f"an inconclusive verdict names {verdict.stage}"
    if arm in ran:
        if ran[arm] < 2 and verdict.stage != "step":
            yield f"{verdict.stage} is named from one block of its arm"
        if stage.marginal_gain is None or not stage.marginal_gain.value >= 1.01:
            yield f"{verdict.stage} is named, and without it the pipeline gains {stage.marginal_gain}"
        elif (
            verdict.stage != "step" and not _others(run, verdict.stage) and _saved(stage.marginal_gain) < 0.25 * (stage.share or 0)
        ):
            yield f"{verdict.stage} is said to take {stage.share}, and without it the pipeline gains {stage.marginal_gain}"
    elif verdict.stage == "step" and ran.get("consumer-alone", 0) >= 2 and _paced(run):
        return  # the consumer by itself is an arm as well
    elif verdict.stage == "transfer":
        if ran.get("real", 0) < 2:
            yield "transfer is named from one block"
    elif arm not in declined or "time" in declined[arm]:
        yield f"{verdict.stage} is named, and its arm did not run though it could"
    elif ran.get("real", 0) < 2:
        yield f"{verdict.stage} is named from one block and no arm"


def _paced(run: Run) -> bool:
    """Whether the consumer by itself was hardly faster than with the pipeline."""
    rates = {arm.name: statistics.median(arm.rates) for arm in run.arms if arm.rates}
    return rates["consumer-alone"] <= 1.3 * max(rates.get("real", 0.0), rates.get("plain", 0.0))


def _others(run: Run, named: str) -> bool:
    """Whether something runs beside the named stage, so that its share of one process is no bound of what it gains."""
    return run.settings.num_workers > 0


def _saved(gain: Interval) -> float:
    return 1 - 1 / gain.value


def _blocks(run: Run, ran: dict[str, int]) -> Iterator[str]:
    """One block gives no interval, and a share of resamples needs five."""
    real, said = ran.get("real", 0), card(run)
    if said.confidence is not None and "resamples" in said.confidence and real < FEWEST_RESAMPLED:
        yield f"resamples of {real} blocks are told"
    if said.confidence is not None and "resamples" in said.confidence and run.verdict is not None and run.verdict.by_arms:
        yield "resamples are told, and arms decided"
    if real < 2:
        for stage in run.stages:
            if stage.wall_s is not None and math.isfinite(stage.wall_s.low) and stage.stage != "transfer":
                yield f"{stage.stage} has an interval from one block"
        if re.search(r"\(\d[\d.]*-\d", said.verdict):
            yield f"an interval from one block: {said.verdict}"
    for stage in run.stages:
        if (
            stage.marginal_gain is not None
            and ran.get(OWN_ARM.get(stage.stage, ""), 0) < 2
            and math.isfinite(stage.marginal_gain.low)
        ):
            yield f"{stage.stage}'s gain has an interval from one block"


def _open(run: Run) -> Iterator[str]:
    """What is left open says what would settle it."""
    verdict = run.verdict
    if verdict is None or verdict.kind != "inconclusive" or "nothing was measured" in verdict.sentence:
        return
    if not re.search(r"--budget \d+|--trace|Moved into", verdict.sentence):
        yield f"nothing is said that would settle it: {verdict.sentence}"


def _adds_up(run: Run) -> Iterator[str]:
    """The stage table, its operations and the whole agree."""
    whole = run.sample_s.value if run.sample_s is not None else 0.0
    if run.unattributed_s is not None and whole:
        summed = sum((stage.share or 0.0) * whole for stage in run.stages) + run.unattributed_s
        if not math.isclose(summed, whole, rel_tol=1e-6):
            yield f"stages and the rest add up to {summed}, the whole is {whole}"
    for stage in run.stages:
        if stage.ops and stage.wall_s is not None and stage.stage in ("storage", "decode", "augment"):
            ops = sum(op.wall_s for op in stage.ops)
            if not math.isclose(ops, stage.wall_s.value, rel_tol=1e-6, abs_tol=1e-12):
                yield f"operations of {stage.stage} take {ops}, the stage {stage.wall_s.value}"


def _proposals(run: Run) -> Iterator[str]:
    """What is proposed can be typed: commands of ours are understood, and arguments are those that a DataLoader has."""
    for remedy in run.remedies:
        if remedy.status != "proposed":
            continue
        command = (remedy.command or "").partition("  # ")[0]
        try:
            if command.startswith("pipefix "):
                parse(shlex.split(command)[1:], find())
            elif command.startswith("DataLoader("):
                inspect.signature(DataLoader).bind(None, **_named_arguments(command.replace("...", "dataset")))
            elif command.startswith("pipefix."):
                verb = command.removeprefix("pipefix.").partition("(")[0]
                inspect.signature(getattr(pipefix, verb)).bind(None, **_named_arguments(command))
            elif not command[:1].isupper():
                yield f"{remedy.id} proposes what is neither a command nor a sentence: {command!r}"
        except (BadUsage, SyntaxError, TypeError, AttributeError) as error:
            yield f"{remedy.id} proposes what cannot be typed: {command!r}: {error}"


def _named_arguments(call: str) -> dict[str, None]:
    parsed = ast.parse(call, mode="eval").body
    return {keyword.arg: None for keyword in getattr(parsed, "keywords", ()) if keyword.arg}


def _figures(run: Run, name: str) -> StageFigures:
    return next(stage for stage in run.stages if stage.stage == name)
