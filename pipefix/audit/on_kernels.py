"""What keeps the fused path from its native code."""

from __future__ import annotations

from pipefix.audit.finding import AuditFacts, Said, rule


@rule("native-kernel", "note", "the native kernel of the fused path is absent")
def native_kernel(facts: AuditFacts) -> Said | None:
    if facts.no_kernel is None:
        return None
    why, advice = facts.no_kernel
    return Said(f"{why} Fused pictures are made by its twin, at about two thirds of the speed.", advice)
