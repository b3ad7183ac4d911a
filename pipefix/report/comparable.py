"""Whether two runs may be compared: differences that make a ratio meaningless, and those that make it doubtful."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pipefix.report import descriptions
from pipefix.report.runfile import Run, encode
from pipefix.vocabulary import quantity
from pipefix.vocabulary.settings import LoaderSettings

SAME_MEMORY = 0.05
"""Machines whose memory differs by less are taken for the same kind: kernels reserve different amounts."""


def unlike(before: Run, after: Run) -> list[str]:
    """Differences that make a ratio of the two meaningless."""
    reasons = []
    if not _same_target(before.target, after.target):
        reasons.append(f"their targets differ ({before.target or 'unnamed'} and {after.target or 'unnamed'})")
    reasons += _machines(before.machine, after.machine)
    if _consumer(before.consumer) != _consumer(after.consumer):
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


def _consumer(consumer: str) -> str:
    """What must be equal: an emulated step to the figure, a real one in kind only (its speed is a result)."""
    return consumer if consumer.startswith("emulated") else consumer.split(" ")[0].rstrip(",:")


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
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
