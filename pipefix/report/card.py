"""Verdict, why and next: the three things a person reads first, as sentences. The terminal and the page show the same ones.

Nothing is decided here: the verdict and the ranking are the run's own, and these words only say which figures stand behind them.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from pipefix.report import wording
from pipefix.report.runfile import RemedyFigures, Run, StageFigures
from pipefix.vocabulary.stage import INPUT

FREE = {
    "storage": "with every read answered from memory",
    "decode": "with decode answered from a recording",
    "augment": "with augmentation answered from a recording",
    "collate": "with ready-made batches instead of collate",
    "ipc": "with no hand-over between processes",
    "transfer": "with batches already on the device",
    "step": "with a consumer that takes no time",
}
"""What an arm puts in a stage's place."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """The verdict's kind, or "no verdict"."""
    verdict: str
    confidence: str | None = None
    why: list[tuple[str, str]] = []
    """(evidence, sentence): clocks and arms, independent of one another."""
    next: list[str] = []
    """Sentences: what to do, what it is worth, what it costs."""
    command: str | None = None


def card(run: Run) -> Card:
    best = best_remedy(run)
    settled = run.verdict is not None and run.verdict.kind != "inconclusive"
    next_, command = _remedy(best) if best is not None and settled else _without_remedy(run, settled)
    if run.verdict is None:
        ended = "The probe was interrupted before it could say" if run.partial else "This run file holds no verdict on"
        return Card(kind="no verdict", verdict=f"{ended} what limits this pipeline.", why=_why(run), next=next_, command=command)
    confidence = None
    if wording.known(run.verdict.confidence):
        confidence = f"the same verdict in {wording.percent(run.verdict.confidence)} of resamples"
    return Card(
        kind=run.verdict.kind, verdict=run.verdict.sentence, confidence=confidence, why=_why(run), next=next_, command=command
    )


def best_remedy(run: Run) -> RemedyFigures | None:
    """The first proposed one: the run lists them ranked."""
    return next((remedy for remedy in run.remedies if remedy.status == "proposed"), None)


def remedy_pedigree(remedy: RemedyFigures) -> str:
    return "measured in a trial" if remedy.measured else "predicted by the model"


def remedy_cost(remedy: RemedyFigures) -> str:
    """``11.0 GB of disk, 6.00 min once``; empty where the remedy costs nothing to apply."""
    if remedy.cost is None:
        return ""
    parts = []
    if wording.known(remedy.cost.disk_bytes) and remedy.cost.disk_bytes:
        parts.append(f"{wording.size(remedy.cost.disk_bytes)} of disk")
    if wording.known(remedy.cost.seconds) and remedy.cost.seconds:
        parts.append(f"{wording.seconds(remedy.cost.seconds)} once")
    return ", ".join(parts)


def _remedy(remedy: RemedyFigures) -> tuple[list[str], str | None]:
    title = _sentence(remedy.title)
    worth = wording.usable(remedy.speedup)
    cost = remedy_cost(remedy)
    said = [title]
    if worth is not None:
        said.append(f"{wording.times_between(worth)} the throughput, {remedy_pedigree(remedy)}.")
    said.append(f"Costs {cost}." if cost else "Costs no disk and no preparation.")
    return said, remedy.command


def _without_remedy(run: Run, settled: bool) -> tuple[list[str], str | None]:
    if settled and run.verdict is not None and run.verdict.kind == "input-bound":
        return ["No remedy that pipefix knows applies here; the list of remedies says why for each."], None
    if settled:
        return ["Leave the loader alone: none of the remedies is worth its cost here."], None
    if run.verdict is None and not run.caveats:
        target = shlex.quote(run.target) if run.target else "TARGET"
        return ["Probe the pipeline, and let it finish."], f"pipefix probe {target} --out run.json"
    again = f"pipefix probe {shlex.quote(run.target)}" if run.target else None
    longer = _longer_budget(run)
    said = [_sentence(caveat.sentence) for caveat in run.caveats[:2]] or ["A longer probe gives narrower intervals."]
    return said, f"{again} --budget {longer}" if again else None


def _longer_budget(run: Run) -> int:
    """What a caveat asks for, or else twice the time that was spent, in whole tens, and at least two minutes."""
    asked = [int(found) for caveat in run.caveats for found in re.findall(r"--budget (\d{1,6})", caveat.sentence)]
    if asked:
        return max(asked)
    spent = run.instrument.seconds if run.instrument is not None else None
    return 120 if spent is None or not wording.known(spent) else max(120, round(spent * 2 / 10) * 10)


def _why(run: Run) -> list[tuple[str, str]]:
    pairs = (("clocks", _clocks(run)), ("arms", _arms(run)))
    return [(label, text) for label, text in pairs if text]


def _clocks(run: Run) -> str:
    kind = run.verdict.kind if run.verdict is not None else ""
    if kind == "step-bound":
        return " ".join(part for part in (_fed(run), _step(run)) if part)
    stages = _suspects(run)
    said = [_clock(stage) for stage in stages]
    return _sentence("; ".join(said)) if said else _fed(run)


def _suspects(run: Run) -> list[StageFigures]:
    """The stage that the verdict names, or else the two that account for most."""
    measured = [stage for stage in run.stages if wording.usable(stage.wall_s) is not None]
    if run.verdict is not None and run.verdict.stage is not None:
        return [stage for stage in measured if stage.stage == run.verdict.stage]
    ranked = sorted(measured, key=lambda stage: stage.share if stage.share is not None and wording.known(stage.share) else -1.0)
    return ranked[::-1][:2]


def _clock(stage: StageFigures) -> str:
    said = f"{stage.stage} takes {wording.seconds_between(stage.wall_s)} a sample"
    if stage.hidden:
        said += ", hidden behind something slower"
    elif wording.known(stage.share):
        said += f", {wording.percent(stage.share)} of the delivered time"
    wall, cpu = wording.usable(stage.wall_s), wording.usable(stage.cpu_s)
    if wall is None or cpu is None or wall.value <= 0:
        return said
    part = cpu.value / wall.value
    if part >= 0.9:
        return f"{said}, nearly all of it CPU work"
    if part <= 0.5:
        return f"{said}, only {wording.seconds(cpu.value)} of it CPU work: the rest is waiting"
    return f"{said}, {wording.seconds(cpu.value)} of it CPU work"


def _fed(run: Run) -> str:
    """How busy the consumer was, and at what rate."""
    said = []
    if run.waits is not None and wording.known(run.waits.fed):
        said.append(f"The consumer is fed {wording.percent(run.waits.fed)} of the time.")
    rates = run.throughput
    if rates is not None and wording.usable(rates.demand) is not None and wording.usable(rates.delivered) is not None:
        demand = wording.rate_between(rates.demand, rates.unit)
        said.append(f"It could take {demand}, and {wording.rate_between(rates.delivered, rates.unit)} are delivered.")
    return " ".join(said)


def _step(run: Run) -> str:
    split = run.step_split
    if split is None:
        return ""
    parts = {"forward": split.forward_s, "backward": split.backward_s, "optimizer": split.optimizer_s, "other": split.other_s}
    said = [f"{name} {wording.seconds(value)}" for name, value in parts.items() if wording.known(value) and value]
    return f"A step is {', '.join(said)}." if said else ""


def _arms(run: Run) -> str:
    gains = [stage for stage in run.stages if wording.usable(stage.marginal_gain) is not None]
    if run.verdict is not None and run.verdict.kind == "step-bound":
        loader = [stage for stage in gains if stage.stage in {str(name) for name in INPUT}]
        if not loader:
            return ""
        best = max(loader, key=_gain)
        return f"{_free(best)}; no other part of the loader would win more."
    suspects = _suspects(run)
    said = [_free(stage) for stage in suspects if stage in gains]
    return _sentence("; ".join(said)) if said else ""


def _gain(stage: StageFigures) -> float:
    return stage.marginal_gain.value if stage.marginal_gain is not None else 0.0


def _free(stage: StageFigures) -> str:
    instead = FREE.get(stage.stage, f"with {stage.stage} taking no time")
    text = f"{instead} the pipeline delivers {wording.times_between(stage.marginal_gain)}"
    gain = stage.marginal_gain
    if gain is not None and gain.low <= 1.0 <= gain.high:
        text += ", which may be no gain at all"
    return text


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?" else text + "."
