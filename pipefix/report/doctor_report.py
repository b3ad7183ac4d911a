"""The document of ``pipefix doctor``: the machine in a line or two, then each finding with its advice, the worst first."""

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
        about=[", ".join(descriptions.machine_line(machine))] if machine else [],
        sections=[untitled(first), *(untitled(*findings([finding])) for finding in ranked)],
    )


def findings(audit: Sequence[Finding]) -> list[Block]:
    advice = [Paragraph(finding.advice + (f" (rule: {finding.rule})" if finding.rule else "")) for finding in audit]
    told = zip(audit, advice, strict=True)
    items = [Item(text=finding.found, tag=finding.severity, blocks=[paragraph]) for finding, paragraph in told]
    return [Items(items)] if items else []
