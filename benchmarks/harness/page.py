"""A case's page: what came of it first, then how it was measured, then the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.harness.bar import conclusion
from benchmarks.harness.case import Case
from benchmarks.harness.machine import line


def page(case: Case, body: dict[str, Any]) -> str:
    bars = case.bars(body)
    parts = [f"# {case.title}", f"**{conclusion(bars)}**"]
    if bars:
        parts.append(rows(["claim", "bar", "figure", ""], [[bar.claim, bar.wanted, bar.figure, bar.state] for bar in bars]))
    parts += [f"`{body.get('command', f'scripts/bench {case.name}')}`, {body.get('date', 'undated')}, {line(body['machine'])}."]
    return "\n\n".join([*parts, case.table(body).strip()]) + "\n"


def rows(head: Sequence[str], cells: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(str(cell) for cell in row)} |" for row in cells)])
