"""Runs every audit rule (found by walking ``on_*``), the gravest finding first."""

from __future__ import annotations

import functools
import importlib
import pkgutil

import pipefix.audit as package
from pipefix.audit.facts import AuditFacts, Rule
from pipefix.vocabulary.finding import SEVERITIES, Finding


@functools.cache
def every_rule() -> tuple[Rule, ...]:
    rules: dict[str, Rule] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("on_"):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            rules.update({value.id: value for value in vars(module).values() if isinstance(value, Rule)})
    return tuple(rules[name] for name in sorted(rules))


def audit(facts: AuditFacts) -> list[Finding]:
    """What is wrong, gravest first. Empty means that no rule fired, not that everything was known."""
    findings = [finding for rule in every_rule() if (finding := rule.check(facts)) is not None]
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.id))
