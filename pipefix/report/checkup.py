"""What ``pipefix doctor`` found, as lines for the terminal: the machine in a line or two, then each finding with its advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipefix.report import about, wording
from pipefix.report.columns import Paint, plain, wrap
from pipefix.report.runfile import Finding

_STYLES = {"problem": "red", "warning": "yellow", "note": "blue"}


def lines(
    machine: Mapping[str, Any], findings: Sequence[Finding], *, width: int = 100, color: bool = False, unicode: bool = True
) -> list[str]:
    paint = Paint(max(width, 40), color, unicode)
    out = list(_lines(machine, findings, paint))
    return out if unicode else [plain(line) for line in out]


def _lines(machine: Mapping[str, Any], findings: Sequence[Finding], paint: Paint) -> Iterator[str]:
    said = about.machine_line(machine)
    if said:
        yield from (paint.ink(row, "dim") for row in wrap(paint.text(", ".join(said)), paint.width))
    yield from (paint.ink(row, "bold") for row in wrap(_sentence(findings), paint.width))
    order = list(_STYLES)
    for finding in sorted(findings, key=lambda one: order.index(one.severity) if one.severity in order else len(order)):
        yield ""
        rows = wrap(paint.text(f"{finding.severity}: {finding.found}"), paint.width)
        yield from (paint.ink(row, "bold", _STYLES.get(finding.severity, "bold")) for row in rows)
        advice = finding.advice + (f" (rule: {finding.rule})" if finding.rule else "")
        yield from ("  " + row for row in wrap(paint.text(advice), paint.width - 2))


def _sentence(findings: Sequence[Finding]) -> str:
    if not findings:
        return "Nothing was found that would slow a pipeline down or break it."
    counts = [(severity, sum(one.severity == severity for one in findings)) for severity in _STYLES]
    return ", ".join(wording.counted(count, severity) for severity, count in counts if count) + "."
