"""The card of a run, for terminal and page alike: verdict, why, next, as sentences.

Nothing is decided here: the verdict and the ranking are the run's own, and these words only say which figures stand behind them.
"""

from __future__ import annotations

import re

import msgspec

from pipefix.report import descriptions
from pipefix.report.document import COLOURS, sentence
from pipefix.report.program_report import NOT_PROBED, experiments_in, notes, probe_of
from pipefix.report.runfile import EVALUATION_WAITS, GainFigures, RemedyFigures, Run, StageFigures
from pipefix.vocabulary import quantity
from pipefix.vocabulary.commands import as_measured, command, made_in_program, on_target
from pipefix.vocabulary.gain import FEWEST_RESAMPLED, pedigree
from pipefix.vocabulary.stage import INPUT

FREE = {
    "storage": "with every read answered from memory",
    "decode": "with decode answered from a recording",
    "augment": "with augmentation answered from a recording",
    "collate": "with ready-made batches instead of collate",
    "ipc": "with no hand-over between processes",
    "transfer": "with batches already on the device",
    "step": "with a consumer that takes no time",
    "sampler": "with the sampler's orders given again from memory",
}
"""What an arm puts in a stage's place."""

_LONGER = re.compile(r"--(?:budget |probe=)(\d{1,6})")
"""What a sentence that asks for a longer probe names."""
NEARLY_ALL = 0.9
SURELY = 1.08
"""Lower end of a measured gain that is told although nobody knows what limits."""
QUEUED = 0.15
"""Part of a stage's time with other threads at work, or in the queue for a CPU, that is not passed over as waiting."""


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

    @property
    def colour(self) -> str:
        return COLOURS.get(self.kind, "")


def card(run: Run) -> Card:
    settled = _settled(run)
    # What was really tried, and surely gains, does so whatever it is that limits.
    worths = ((remedy, quantity.usable(remedy.speedup)) for remedy in run.proposed if remedy.measured)
    tried = next((remedy for remedy, worth in worths if worth is not None and worth.low >= SURELY), None)
    if best_is_told(run):
        next_, command = _remedy(run.proposed[0], alone=run.consumer == "none")
        next_ += filter(None, [_why_not_the_named(run, run.proposed[0])])
    elif tried is not None:
        next_, command = _remedy(tried, alone=run.consumer == "none")
        next_ = ["Whatever limits it, this was tried beside it:", *next_]
    else:
        next_, command = _without_remedy(run, settled)
    verdict = run.verdict
    why = [(label, text) for label, text in (("clocks", _clocks(run)), ("arms", _arms(run))) if text]
    if verdict is None:
        ended = "The probe was interrupted before it could say" if run.partial else "This run file holds no verdict on"
        return Card(kind="no verdict", verdict=f"{ended} what limits this pipeline.", why=why, next=next_, command=command)
    confidence = None
    # Of the pipeline as it is; 0 where the run does not say.
    blocks = verdict.blocks or max((len(arm.rates) for arm in run.arms if arm.name == "real"), default=0)
    if blocks >= FEWEST_RESAMPLED and settled and not verdict.by_arms and quantity.known(verdict.confidence):
        agree = "all" if verdict.confidence >= 1 else f"{quantity.percent(verdict.confidence)} of"
        confidence = f"{agree} resamples of {blocks} blocks agree"
    elif blocks:
        confidence = f"from {quantity.counted(blocks, 'block')} of the pipeline as it is"
    return Card(kind=verdict.kind, verdict=verdict.sentence, confidence=confidence, why=why, next=next_, command=command)


def best_is_told(run: Run) -> bool:
    """Whether the card names the best remedy: it does once the verdict is settled."""
    return bool(run.proposed) and _settled(run)


def _settled(run: Run) -> bool:
    return run.verdict is not None and run.verdict.kind != "inconclusive"


def remedy_cost(remedy: RemedyFigures) -> str:
    """``11.0 GB of disk, 6.00 min once``; empty where the remedy costs nothing to apply."""
    if remedy.cost is None:
        return ""
    disk, spent = remedy.cost.disk_bytes, remedy.cost.seconds
    parts = [f"{quantity.size(disk)} of disk"] if quantity.known(disk) and disk else []
    if disk is None and remedy.id.startswith("cache-"):
        parts = ["an unknown amount of disk"]
    return ", ".join([*parts, *([f"{quantity.seconds(spent)} once"] if quantity.known(spent) and spent else [])])


def _remedy(remedy: RemedyFigures, *, alone: bool) -> tuple[list[str], str | None]:
    cost, phrases = remedy_cost(remedy), [sentence(remedy.title)]
    whose = " of the input side alone" if alone else ""
    if quantity.usable(remedy.speedup) is not None:
        phrases.append(f"{quantity.times_between(remedy.speedup)} the throughput{whose}, {pedigree(remedy.measured, whole=True)}.")
    phrases.append(f"Costs {cost}." if cost else "Costs no disk and no preparation.")
    return phrases, remedy.command


def _why_not_the_named(run: Run, best: RemedyFigures) -> str | None:
    """Where the best remedy leaves the named stage as it is: which one would not, or why none does."""
    named = run.verdict.stage if run.verdict is not None and run.verdict.kind == "input-bound" else None
    if _is_sampler_named(run):
        return "It leaves the sampler as it is, as every remedy does that pipefix knows; the verdict says what would help."
    if named is None or named in (best.stage, *best.relieves):
        return None
    acting = [remedy for remedy in run.remedies if named in (remedy.stage, *remedy.relieves)]
    for rank, remedy in enumerate(run.proposed, 1):
        if remedy in acting:
            gain = f", {quantity.times_between(remedy.speedup)}" if quantity.usable(remedy.speedup) is not None else ""
            return f"It leaves {named} as it is; remedy {rank} acts on that: {sentence(remedy.title)[:-1]}{gain}."
    if not acting:
        return f"It leaves {named} as it is; pipefix knows no remedy that acts on that."
    refused = max(acting, key=lambda remedy: _worth(remedy.speedup))
    return f"It leaves {named} as it is; what acts on that does not apply here: {sentence(refused.title)[:-1]}: {refused.why}."


def _worth(gain: quantity.Interval | None) -> float:
    known = quantity.usable(gain)
    return known.value if known is not None else 0.0


def _without_remedy(run: Run, settled: bool) -> tuple[list[str], str | None]:
    if run.program is not None and not run.stages:
        why_not = [error for error in run.program.errors if error.startswith(NOT_PROBED)]
        if why_not:
            return why_not[:1], None
        if not run.program.loops:
            return [next(notes(run.program))], None
        if run.verdict is not None and run.verdict.kind == "step-bound":
            of_training = "Leave the training's loader alone: look at its steps, and at the loader of the evaluation."
            steps = "Leave the data alone: look at the steps, whose parts the table tells."
            return [of_training if EVALUATION_WAITS in run.verdict.sentence else steps], None
        clocks = "These are clocks: experiments show which stage is slow, and what each fix is worth."
        return [clocks], experiments_in(run.program)
    if settled and run.verdict is not None and run.verdict.kind == "input-bound":
        return ["No remedy that pipefix knows applies here; the list of remedies says why for each."], None
    anew = [finding for finding in (run.program.findings if run.program is not None else ()) if finding.id == "workers-anew"]
    if settled and anew:  # experiments leave first batches out
        return [f"{sentence(finding.found)} {finding.advice}" for finding in anew], None
    if settled and run.verdict is not None and EVALUATION_WAITS in run.verdict.sentence:
        return ["Leave the training's loader alone: none of the remedies is worth its cost. Look at that of the evaluation."], None
    if settled:
        return ["Leave the loader alone: none of the remedies is worth its cost here."], None
    if run.verdict is None and not run.caveats:
        return ["Probe the pipeline, and let it finish."], command("pipefix", "probe", run.target or "TARGET", "--out", "run.json")
    if run.verdict is not None and run.target and _LONGER.search(run.verdict.sentence) is None:
        if "--trace" in run.verdict.sentence:
            traced = probe_of(run.program, "--trace", "trace.json") if run.program is not None else None
            return ["Look at what runs meanwhile."], traced or _again(run, trace="trace.json")
        if "Moved into" in run.verdict.sentence:
            return ["Give that code a name of its own, and probe again."], _again(run)
    # What a caveat or the verdict asks for, or else twice the time that was spent, in whole tens, and at least two minutes.
    asking = [caveat.sentence for caveat in run.caveats] + ([run.verdict.sentence] if run.verdict is not None else [])
    budgets = [int(number) for text in asking for number in _LONGER.findall(text)]
    spent = run.instrument.seconds if run.instrument is not None else None
    longer = max(budgets, default=max(120, round(min(spent, 1e9) / 5) * 10) if quantity.known(spent) else 120)
    sentences = [sentence(caveat.sentence) for caveat in run.caveats[:2]] or ["A longer probe gives narrower intervals."]
    if run.program is not None:
        return sentences, experiments_in(run.program, f"--probe={longer}")
    return sentences, _again(run, budget=longer)


def _again(run: Run, **options: object) -> str | None:
    """The probe once more, with what it was given, beside the same step; a loader inside a program has no name to give."""
    options = {**as_measured(run.target, run.consumer, run.given), **options}
    return None if not run.target or made_in_program(run.target) else on_target("probe", run.target, **options)


def _clocks(run: Run) -> str:
    kind = run.verdict.kind if run.verdict is not None else ""
    if kind == "step-bound":
        phrases = descriptions.step_phrases(run)
        step = f"A step is {', '.join(phrases)}." if phrases else ""
        return f"{_fed(run)} {step}".strip()
    clocks = [_clock(stage, run) for stage in _suspects(run)]
    if _is_sampler_named(run):
        clocks = [f"the sampler takes {quantity.seconds_between(run.sampler_s)} a sample in the training process", *clocks[:1]]
    return sentence("; ".join(clocks)) if clocks else _fed(run)


def _is_sampler_named(run: Run) -> bool:
    named = run.verdict is not None and run.verdict.kind == "input-bound" and run.verdict.stage is None
    return named and quantity.usable(run.sampler_s) is not None


def _suspects(run: Run) -> list[StageFigures]:
    """The stage that the verdict names, or else the two that account for most."""
    measured = [stage for stage in run.stages if quantity.usable(stage.wall_s) is not None]
    if run.verdict is not None and run.verdict.stage is not None:
        return [stage for stage in measured if stage.stage == run.verdict.stage]
    ranked = sorted(measured, key=lambda stage: stage.share if quantity.known(stage.share) else -1.0)
    return ranked[::-1][:2]


def _clock(stage: StageFigures, run: Run) -> str:
    sample, wall, cpu = map(quantity.usable, (run.sample_s, stage.wall_s, stage.cpu_s))
    clause = f"{stage.stage} takes {quantity.seconds_between(stage.wall_s)} a sample"
    share = stage.share if quantity.known(stage.share) else None
    beside = share is not None and sample is not None and wall is not None and share * sample.value < wall.value / 2
    if stage.stage == "ipc" and beside and not stage.hidden:
        clause += ", most of it in the training process"
    elif stage.hidden:
        clause += ", hidden behind something slower"
    elif share is not None:
        clause += f", {quantity.percent(share)} of the delivered time"
    if wall is None or cpu is None or wall.value <= 0:
        return clause
    part = cpu.value / wall.value
    if part >= NEARLY_ALL:
        return f"{clause}, nearly all of it CPU work"
    work = f"{quantity.seconds(cpu.value)} of it CPU work"
    queued = wall.value - cpu.value - stage.waiting_s if quantity.known(stage.waiting_s) else 0.0
    if queued > QUEUED * wall.value:
        return f"{clause}, {work}, {quantity.seconds(queued)} other threads or the queue for a CPU"
    return f"{clause}, only {work}: the rest is waiting" if part <= 0.5 else f"{clause}, {work}"


def _fed(run: Run) -> str:
    """How busy the consumer was, and at what rate."""
    phrases = []
    if run.waits is not None and quantity.known(run.waits.fed):
        phrases.append(f"The consumer is fed {quantity.percent(run.waits.fed)} of the time.")
    rates = run.throughput
    if rates is not None and quantity.usable(rates.demand) is not None and quantity.usable(rates.delivered) is not None:
        demand = quantity.rate_between(rates.demand, rates.unit)
        phrases.append(f"It could take {demand}, and {quantity.rate_between(rates.delivered, rates.unit)} are delivered.")
    return " ".join(phrases)


def _arms(run: Run) -> str:
    gains = [stage for stage in run.stages if quantity.usable(stage.marginal_gain) is not None]
    if _is_sampler_named(run) and quantity.usable(run.sampler_gain) is not None:
        return sentence(_free("sampler", run.sampler_gain))
    if run.verdict is not None and run.verdict.kind == "step-bound":
        loader = [stage for stage in gains if stage.stage in {str(name) for name in INPUT}]
        if not loader:
            return ""
        best = max(loader, key=lambda stage: _worth(stage.marginal_gain))
        rest = "other part of the loader" if len(loader) == len(INPUT) else "other part of the loader that was tried"
        return f"{_free(best.stage, best.marginal_gain)}; no {rest} would win more."
    return sentence("; ".join(_free(stage.stage, stage.marginal_gain) for stage in _suspects(run) if stage in gains))


def _free(name: str, gain: GainFigures | None) -> str:
    none = gain is not None and quantity.known(gain.low) and gain.low <= 1.0 <= gain.high
    text = f"{FREE.get(name, f'with {name} taking no time')} the pipeline delivers {quantity.times_between(gain)}"
    return text + (", which may be no gain at all" if none else "")
