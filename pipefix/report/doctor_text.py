"""What ``pipefix doctor`` found, as lines for the terminal: the machine in a line or two, then each finding with its advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipefix.report import setup, wording
from pipefix.report.columns import Paint, for_terminal
from pipefix.report.runfile import Finding

_STYLES = {"problem": "red", "warning": "yellow", "note": "blue"}


@for_terminal
def lines(machine: Mapping[str, Any], findings: Sequence[Finding], paint: Paint) -> Iterator[str]:
    said = setup.machine_line(machine)
    if said:
        yield from paint.paragraph(", ".join(said), "dim")
    yield from paint.paragraph(_sentence(findings), "bold")
    order = list(_STYLES)
    for finding in sorted(findings, key=lambda one: order.index(one.severity) if one.severity in order else len(order)):
        yield ""
        yield from paint.paragraph(f"{finding.severity}: {finding.found}", "bold", _STYLES.get(finding.severity, "bold"))
        advice = finding.advice + (f" (rule: {finding.rule})" if finding.rule else "")
        yield from paint.paragraph(advice, first="  ")


def _sentence(findings: Sequence[Finding]) -> str:
    if not findings:
        return "Nothing was found that would slow a pipeline down or break it."
    counts = [(severity, sum(one.severity == severity for one in findings)) for severity in _STYLES]
    return ", ".join(wording.counted(count, severity) for severity, count in counts if count) + "."
