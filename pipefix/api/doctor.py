"""pipefix.doctor: audit the machine and the settings of a loader, without measuring anything."""

from __future__ import annotations

from typing import Any

from pipefix.audit.facts import AuditFacts, audit
from pipefix.kernels import build
from pipefix.system.machine import look
from pipefix.vocabulary.finding import Finding as Finding


def doctor(target: Any = None) -> tuple[dict[str, Any], list[Finding]]:
    """Audit the machine, and the settings of a target's loader, without measuring a pipeline.

    Args:
        target: what `pipefix.probe` takes; None audits the machine alone.

    Returns:
        Facts of the machine, and what was found with its advice.
    """
    machine, absent = look(), build.why_not_loaded()
    facts = AuditFacts(machine=machine, no_kernel=absent)
    if target is not None:
        # A target needs PyTorch; the machine alone does not.
        from pipefix.api.in_program import refuse_program
        from pipefix.api.target import load_target
        from pipefix.audit import loader_facts

        refuse_program(target)
        subject = load_target(target)
        facts_of_loader = loader_facts.loader_facts(subject.loader)
        facts = AuditFacts(machine=machine, settings=subject.settings, no_kernel=absent, **facts_of_loader)
    return machine.as_dict(), audit(facts)
