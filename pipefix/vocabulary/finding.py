"""`Finding`: one mistake that the audit found, with what was seen and what to type."""

from __future__ import annotations

import msgspec

SEVERITIES = ("problem", "warning", "note")
"""problem: it will fail or cost a multiple. warning: it costs time or memory now. note: worth knowing."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the audit that fired."""

    id: str
    severity: str
    """One of `SEVERITIES`."""
    found: str
    """What was seen, with its figures."""
    advice: str
    """Exactly what to type or change."""
    rule: str | None = None
    """The rule with its threshold, as it is printed. Run files of before had none."""
