"""doctor: audit the machine, and a target's settings, without measuring a pipeline."""

from __future__ import annotations

from typing import Any

from pipefix.audit import observe
from pipefix.audit.finding import AuditFacts
from pipefix.audit.rules import audit
from pipefix.kernels import kernel
from pipefix.measurement.machine import look
from pipefix.verbs.target import load_target
from pipefix.vocabulary.finding import Finding as Finding


def doctor(target: Any = None) -> tuple[dict[str, Any], list[Finding]]:
    """Audit the machine, and the settings of a target's loader, without measuring a pipeline.

    Args:
        target: what `pipefix.probe` takes; None audits the machine alone.

    Returns:
        Facts of the machine, and what was found with its advice.
    """
    machine = look()
    found = kernel.native()
    absent = (found.why, found.advice) if isinstance(found, kernel.Absent) else None
    facts = AuditFacts(machine=machine, no_kernel=absent)
    if target is not None:
        subject = load_target(target)
        seen = observe.loader_facts(subject.loader)
        facts = AuditFacts(machine=machine, settings=subject.settings, no_kernel=absent, **seen)
    return machine.as_dict(), audit(facts)
