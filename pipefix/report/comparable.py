"""Whether two runs may be compared: differences that make a ratio meaningless or doubtful, and what of it is the machine's."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from statistics import median
from typing import Any

import msgspec

from pipefix.report import descriptions
from pipefix.report.runfile import Run, encode
from pipefix.vocabulary import quantity
from pipefix.vocabulary.commands import made_in_program
from pipefix.vocabulary.settings import LoaderSettings
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

SAME_MEMORY = 0.05
"""Machines whose memory differs by less are taken for the same kind: kernels reserve different amounts."""
COMPUTING = (Stage.DECODE, Stage.AUGMENT, Stage.COLLATE)
"""Stages whose CPU seconds show the pace of the machine."""
LEAST_SECONDS = 2e-6
"""A sample of CPU time below which a stage's figure tells nothing of the pace."""
BY_CHANCE = 0.02
"""On the logarithmic scale: a difference of the machine up to this is none."""
DISTRUST = 0.5
"""The machine's part is a model's: it may be wrong by this part of itself."""
MOST_PACE = 3.0
"""A machine that computes so many times slower or faster is another one: what all stages share is then the code's."""
LIKE_REFERENCE = 1.5
"""On the logarithmic scale, how much more the machine may slow a stage than the reference work. Pictures felt 0.7 to 0.8
of it, sums of arrays and checksums all of it, hashing in hardware a fifth."""
NEIGHBOUR = 0.10
"""Cores of others, as part of those that the run may use: so many more, and the machine was not the same."""


def unlike(before: Run, after: Run) -> list[str]:
    """Differences that make a ratio of the two meaningless."""
    reasons = []
    if not _same_target(before.target, after.target):
        reasons.append(f"their targets differ ({before.target or 'unnamed'} and {after.target or 'unnamed'})")
    reasons += _machines(before.machine, after.machine)
    if _consumer(before) != _consumer(after):
        reasons.append(f"their consumers differ ({before.consumer} and {after.consumer})")
    if before.throughput is not None and after.throughput is not None and before.throughput.unit != after.throughput.unit:
        reasons.append(f"their units differ ({before.throughput.unit} and {after.throughput.unit})")
    return reasons


def _same_target(before: str, after: str) -> bool:
    """Checkouts of the same project lie in different places, so a file counts without its directory. Folders of samples do not:
    half of all datasets have a ``train``. There, one path may leave out where the other begins."""
    old, new = (target.replace("\\", "/").rstrip("/") for target in (before, after))
    if all(re.search(r"\.py(:[^/]*)?\Z", target) for target in (old, new)):
        return old.rpartition("/")[2] == new.rpartition("/")[2]
    longer, shorter = sorted((old.removeprefix("./"), new.removeprefix("./")), key=len, reverse=True)
    return longer == shorter or (shorter != "" and longer.endswith(f"/{shorter}"))


def _consumer(run: Run) -> str:
    """What must be equal: an emulated step to the figure; a real one, and a program's own, in kind only (its speed is a result)."""
    if run.consumer.startswith("emulated") and not made_in_program(run.target):
        return run.consumer
    return run.consumer.split(" ")[0].rstrip(",:")


def _machines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    if not before or not after:
        return []
    facts = [
        (name, old, new) for (name, old), new in zip(_facts(before).items(), _facts(after).values(), strict=True) if old != new
    ]
    reasons = [f"their {name} differ ({old} and {new})" for name, old, new in facts if old is not None and new is not None]
    old, new = (descriptions.figure(machine, "memory_bytes") for machine in (before, after))
    if old is not None and new is not None and abs(old - new) > SAME_MEMORY * max(old, new):
        reasons.append(f"their memories differ ({quantity.size(old)} and {quantity.size(new)})")
    return reasons


def _facts(machine: Mapping[str, Any]) -> dict[str, Any]:
    cores = descriptions.figure(machine, "effective_cores")
    return {
        "processors": machine.get("cpu_model"),
        "usable CPUs": quantity.number(cores) if cores is not None else None,
        "GPUs": ", ".join(descriptions.gpu_names(machine)) or "none",
        "systems": machine.get("system"),
    }


def doubts(before: Run, after: Run) -> list[str]:
    doubts = []
    if before.created and encode(before) == encode(after):
        doubts.append("Both files hold one and the same run: this compares it with itself.")
    for name, run in (("first", before), ("second", after)):
        if run.partial:
            doubts.append(f"The {name} run was interrupted: its figures are what was known by then.")
        if not run.machine:
            doubts.append(f"The {name} run does not say on which machine it was made.")
    if before.target != after.target and _same_target(before.target, after.target):
        doubts.append(f"The targets lie in different places: {before.target} and {after.target}.")
    if before.consumer != after.consumer and made_in_program(before.target) and made_in_program(after.target):
        old_step, new_step = (run.consumer.removeprefix("emulated: ") for run in (before, after))
        doubts.append(f"The program's step is emulated as long as it took there: {old_step}, and then {new_step}.")
    old, new = (run.machine.get("versions") for run in (before, after))
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old != new:
        changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
        versions = (f"{name} {old.get(name, 'absent')} -> {new.get(name, 'absent')}" for name in changed)
        doubts.append(f"Library versions differ: {', '.join(versions)}.")
    return doubts


def changed_settings(before: Run, after: Run) -> list[str]:
    settings = {name: (getattr(before.settings, name), getattr(after.settings, name)) for name in LoaderSettings.__struct_fields__}
    return [f"{name}: {_plain(old)} -> {_plain(new)}" for name, (old, new) in settings.items() if old != new]


def _plain(value: int | float | str | None) -> str:
    if value is None or isinstance(value, bool):
        return {None: "not set", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


class MachinePart(msgspec.Struct, frozen=True, kw_only=True):
    """What of a ratio of two runs is the machine's doing: a slower CPU, or a queue for it.

    A neighbour on the same machine shows in two ways that no change of one stage does. Samples queue for a CPU, which the scheduler
    counts apart from computing and from waiting; and all that computes takes more CPU time for the same work, by the same factor.
    """

    factor: float = 1.0
    """Seconds a sample of the same code on the second run's machine over those on the first's: above 1 it was slower."""
    told: bool = True
    """False where somebody else used the machine, and no figure says how much that cost."""
    sentence: str = ""
    """What was different; empty where nothing was."""

    def taken_out(self, ratio: quantity.Interval) -> quantity.Interval:
        """The ratio of throughputs as it would be on one machine. The less of it is left untouched, the wider it is."""
        if not self.sentence:
            return ratio
        doubt = math.exp(DISTRUST * abs(math.log(self.factor)))
        own = ratio.scaled(self.factor)
        return quantity.Interval(own.value, own.low / doubt, own.high * doubt)


def machine_part(before: Run, after: Run) -> MachinePart:
    """What the machine did differently to the second run."""
    others = [descriptions.while_measured(run).get("others_cores") for run in (before, after)]
    more = _more_neighbours(others[0], others[1], after)
    parts = {} if more is False else _stretched(before, after)
    parts |= _pace(before, after, sure=more is False)
    felt = {phrase: part for phrase, part in parts.items() if abs(math.log(part)) > BY_CHANCE}
    phrases, factor = list(felt), math.prod(felt.values(), start=1.0)
    if more:
        phrases.append(f"other programs used {_cores(others[1])} meanwhile ({_cores(others[0])} in the first run)")
    if not phrases:
        return MachinePart()
    sentence = f"The second run's machine was not as the first's: {'; '.join(phrases)}."
    return MachinePart(factor=factor, told=not (more and factor == 1.0), sentence=sentence)


def _stretched(before: Run, after: Run) -> dict[str, float]:
    """In words, by how much more queueing stretched the second run's samples; empty where that is not the machine's, or unknown.

    With other workers the pipeline competes with itself, in another way than before.
    """
    old, new = _queueing(before), _queueing(after)
    if old is None or new is None or before.settings.num_workers != after.settings.num_workers:
        return {}
    words = f"its samples queued for a CPU {quantity.percent(new)} of their time ({quantity.percent(old)} in the first run)"
    return {words: (1 - old) / (1 - new)}


def _queueing(run: Run) -> float | None:
    """The part of the making of samples that they spend in the queue for a CPU. None: not known."""
    wall = queued = 0.0
    for stage in run.stages:
        spent, cpu = quantity.usable(stage.wall_s), quantity.usable(stage.cpu_s)
        if stage.stage not in {str(making) for making in (*IN_SAMPLE, Stage.COLLATE)} or spent is None:
            continue
        wall += spent.value
        if cpu is not None and stage.waiting_s is not None and quantity.known(stage.waiting_s):
            queued += max(0.0, spent.value - cpu.value - stage.waiting_s)
    return queued / wall if wall > queued else None


def _pace(before: Run, after: Run, *, sure: bool) -> dict[str, float]:
    """In words, the factor of CPU time that all stages which compute show, as far as they agree; empty where too few do.

    ``sure``: by the ends of their intervals that are nearest to none. Nobody else was seen on the machine, and of a stage of
    microseconds a few per cent are chance. Another dataset (a cache in its place) does other work in every stage.
    """
    if any(getattr(before.settings, name) != getattr(after.settings, name) for name in ("dataset", "kind")):
        return {}
    old, new = _cpu_seconds(before), _cpu_seconds(after)
    logs = [_log_ratio(old[name], new[name], sure=sure) for name in old if name in new]
    if len(logs) < 2:
        return {}
    agreed = max(0.0, min(logs)) + min(0.0, max(logs))
    most = 2 * abs(agreed) if len(logs) > 2 else abs(agreed)
    log_pace = max(-most, min(most, median(logs)))
    reference = _of_reference(before, after)
    if reference is not None:
        log_pace = max(min(0.0, reference) - BY_CHANCE, min(max(0.0, reference) + BY_CHANCE, log_pace))
    pace = math.exp(log_pace)
    return {f"all that computes took {quantity.times(pace)} the CPU time": pace} if 1 / MOST_PACE < pace < MOST_PACE else {}


def _of_reference(before: Run, after: Run) -> float | None:
    """The most that the machine may have slowed a stage by what it did to the reference work, on the logarithmic scale."""
    old, new = (descriptions.while_measured(run).get("reference_cpu_s", 0.0) for run in (before, after))
    return LIKE_REFERENCE * math.log(new / old) if old > 0 and new > 0 else None


def _cpu_seconds(run: Run) -> dict[str, quantity.Interval]:
    costs = {stage.stage: quantity.usable(stage.cpu_s) for stage in run.stages if stage.stage in COMPUTING}
    return {name: cost for name, cost in costs.items() if cost is not None and cost.low > 0 and cost.value >= LEAST_SECONDS}


def _log_ratio(old: quantity.Interval, new: quantity.Interval, *, sure: bool) -> float:
    middle = math.log(new.value / old.value)
    if not sure:
        return middle
    return max(0.0, math.log(new.low / old.high)) if middle > 0 else min(0.0, math.log(new.high / old.low))


def _more_neighbours(old: float | None, new: float | None, after: Run) -> bool | None:
    """Whether others used more of the machine during the second run; None where a run does not say."""
    if old is None or new is None:
        return None
    usable = descriptions.figure(after.machine, "effective_cores")
    return new - old > NEIGHBOUR * (usable if usable is not None and usable > 0 else 1.0)


def _cores(count: float | None) -> str:
    return quantity.counted(1, "core") if count == 1 else f"{quantity.number(round(count or 0.0, 2))} cores"
