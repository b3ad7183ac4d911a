"""The document of ``pipefix doctor``: the machine in two lines, then each finding with its advice, the worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipefix.report import descriptions
from pipefix.report.document import Block, Document, Item, Items, Paragraph, untitled
from pipefix.vocabulary import quantity
from pipefix.vocabulary.finding import SEVERITIES, Finding


def report(machine: Mapping[str, Any], audit: Sequence[Finding]) -> Document:
    order = {severity: place for place, severity in enumerate(SEVERITIES)}
    ranked = sorted(audit, key=lambda finding: order.get(finding.severity, len(order)))
    counts = [(severity, sum(finding.severity == severity for finding in audit)) for severity in SEVERITIES]
    sentence = ", ".join(quantity.counted(count, severity) for severity, count in counts if count) + "."
    nothing = "No mistake was found in what can be seen without running the pipeline; pipefix probe TARGET runs it."
    first = Paragraph(sentence if audit else nothing, "strong")
    return Document(
        about=[line for line in (", ".join(descriptions.machine_line(machine)), _room(machine)) if line],
        sections=[untitled(first), *(untitled(*findings([finding])) for finding in ranked)],
    )


def _room(machine: Mapping[str, Any]) -> str:
    """What workers share and may run out of: /dev/shm, memory, open files."""
    size, free, memory, files = (
        descriptions.figure(machine, name) for name in ("shm_bytes", "shm_free_bytes", "memory_available_bytes", "fd_soft")
    )
    phrases = [f"{quantity.size(memory)} of memory"] if memory is not None else []
    if size is not None and free is not None:
        phrases.append(f"{quantity.size(free)} of {quantity.size(size)} in /dev/shm")
    phrases = ["Free: " + ", ".join(phrases)] if phrases else []
    phrases += [f"at most {quantity.counted(int(files), 'open file')} a process (ulimit -n)"] if files is not None else []
    return "; ".join(phrases)


def findings(audit: Sequence[Finding]) -> list[Block]:
    advice = [Paragraph(finding.advice + (f" (rule: {finding.rule})" if finding.rule else "")) for finding in audit]
    told = zip(audit, advice, strict=True)
    items = [Item(text=finding.found, tag=finding.severity, blocks=[paragraph]) for finding, paragraph in told]
    return [Items(items)] if items else []
