"""Which stage a call of the user's own belongs to, told by what it is handed and what it gives back.

Handed pixels, it augments; handed bytes, it decodes. Handed only an index or a path it is judged by its result: bytes
mean it read, pixels that it loaded. Text and lists say nothing by themselves: then it counts what the sample has been through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pipefix.seams.tap import OWN_DECODED, OWN_RAW
from pipefix.subject.staging import data_stage
from pipefix.vocabulary.stage import Stage

_PLAIN = (int, float, bool, complex, type(None))


class Told(NamedTuple):
    """What the evidence says of one call."""

    stage: Stage | None
    """None: the call is the user's own code and no piece of a stage."""
    ran: bool = False
    """True where the call had to be made to find out; then ``result`` is what it returned."""
    result: Any = None


class Evidence:
    """Remembers by name what results told of calls whose arguments told nothing."""

    def __init__(self) -> None:
        self.learned: dict[str, Stage | None] = {}

    def of(self, label: str, values: Sequence[Any], phase: int, call: Callable[[], Any]) -> Told:
        """The stage of the call ``label`` with ``values``; the first of a kind is made right away, to learn from its result."""
        stage = data_stage(values)
        if stage is not None:
            return Told(stage)
        if label in self.learned:
            return Told(self.learned[label])
        result = call()
        self.learned[label] = _by_result(result, values, phase)
        return Told(None, True, result)


def _by_result(result: Any, values: Sequence[Any], phase: int) -> Stage | None:
    given = data_stage([result])
    if given is Stage.DECODE:
        return Stage.STORAGE
    if given is Stage.AUGMENT:
        return Stage.DECODE
    if all(isinstance(value, _PLAIN) for value in values):
        return None
    return Stage.DECODE if phase == OWN_RAW else Stage.AUGMENT if phase == OWN_DECODED else None
