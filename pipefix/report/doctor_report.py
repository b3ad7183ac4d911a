"""The document of ``pipefix doctor``: the machine in a line or two, then each finding with its advice, the worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipefix.report import setup
from pipefix.report.document import Document, Paragraph, Section
from pipefix.report.probe_report import findings as listed
from pipefix.vocabulary import quantity
from pipefix.vocabulary.finding import SEVERITIES, Finding


def report(machine: Mapping[str, Any], findings: Sequence[Finding]) -> Document:
    order = {severity: place for place, severity in enumerate(SEVERITIES)}
    ranked = sorted(findings, key=lambda finding: order.get(finding.severity, len(order)))
    counts = [(severity, sum(finding.severity == severity for finding in findings)) for severity in SEVERITIES]
    sentence = ", ".join(quantity.counted(count, severity) for severity, count in counts if count) + "."
    nothing = "No mistake was found in what can be seen without running the pipeline; pipefix probe TARGET runs it."
    first = [Paragraph(sentence if findings else nothing, "strong")]
    return Document(
        about=[", ".join(setup.machine_line(machine))] if machine else [],
        sections=[Section(title="", blocks=[*first]), *(Section(title="", blocks=listed([finding])) for finding in ranked)],
    )
