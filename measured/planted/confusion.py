"""Counts verdicts on planted pipelines: the confusion matrix, and the shares that matter."""

from __future__ import annotations

from collections import Counter
from typing import Any

from measured.planted.cases import TRUTHS

BANDS = ((1.0, 1.2), (1.2, 1.5), (1.5, 2.0), (2.0, 4.0), (4.0, 1e9))
SAID = (*TRUTHS, "inconclusive")


def counted(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those that were never what had been planted, and those that broke."""
    return [result for result in results if result["outcome"] in ("right", "wrong", "inconclusive")]


def shares(results: list[dict[str, Any]]) -> dict[str, float]:
    known = counted(results)
    outcomes = Counter(result["outcome"] for result in known)
    return {outcome: outcomes[outcome] / max(1, len(known)) for outcome in ("right", "wrong", "inconclusive")}


def summary(results: list[dict[str, Any]]) -> str:
    part = shares(results)
    outcomes = Counter(result["outcome"] for result in results)
    return (
        f"{len(counted(results))} judged: right {part['right']:.1%}, confidently wrong {part['wrong']:.1%}, "
        f"inconclusive {part['inconclusive']:.1%}; apart from these {outcomes['drifted']} drifted, {outcomes['error']} errors"
    )


def followed(results: list[dict[str, Any]], again: list[dict[str, Any]]) -> str:
    """What came of following the probe's advice to measure for longer where it had left the verdict open."""
    judged = {result["name"]: result for result in counted(again)}
    told = [judged.get(result["name"], result) if result["outcome"] == "inconclusive" else result for result in results]
    outcomes = Counter(result["outcome"] for result in judged.values())
    return (
        f"{len(again)} left open and probed for longer: {outcomes['right']} right, {outcomes['wrong']} confidently wrong, "
        f"{len(again) - outcomes['right'] - outcomes['wrong']} still open. In the end, {summary(told)}"
    )


def table(results: list[dict[str, Any]]) -> str:
    """Rows: what was planted. Columns: what the probe said."""
    cells = Counter((result["truth"], result["said"]) for result in counted(results))
    other = sorted({said for _, said in cells} - set(SAID))
    columns = (*SAID, *other)
    lines = ["| planted | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for truth in TRUTHS:
        row = [str(cells[truth, said]) if cells[truth, said] else "·" for said in columns]
        lines.append(f"| {truth} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def by(heading: str, groups: list[tuple[str, list[dict[str, Any]]]]) -> str:
    lines = [f"| {heading} | pipelines | right | confidently wrong | inconclusive |", "|---|---:|---:|---:|---:|"]
    for name, members in groups:
        if counted(members):
            part = shares(members)
            lines.append(
                f"| {name} | {len(counted(members))} | {part['right']:.1%} | {part['wrong']:.1%} | {part['inconclusive']:.1%} |"
            )
    return "\n".join(lines)


def breakdowns(results: list[dict[str, Any]]) -> str:
    clear = [result for result in counted(results) if result["truth"] != "balanced"]
    bands = [
        (f"{low:g} to {high:g}x" if high < 1e6 else f"over {low:g}x", [r for r in clear if low <= r["dominance"] < high])
        for low, high in BANDS
    ]
    workers = sorted({result["planted"]["workers"] for result in counted(results)})
    crews = [(str(count), [r for r in counted(results) if r["planted"]["workers"] == count]) for count in workers]
    kinds = [
        ("the limiting stage waits", [r for r in clear if r["truth"] in r["planted"]["waits"]]),
        ("the limiting stage works", [r for r in clear if r["truth"] not in r["planted"]["waits"]]),
    ]
    spread = [
        ("even samples", [r for r in counted(results) if not r["planted"]["unevenness"]]),
        ("uneven samples", [r for r in counted(results) if r["planted"]["unevenness"]]),
    ]
    return "\n\n".join(by(*pair) for pair in (("dominance", bands), ("workers", crews), ("kind", kinds), ("noise", spread)))
