"""Which stage a call of the user's own belongs to, told by what it is handed and what it gives back.

Handed pixels, it augments; handed bytes, it decodes. Handed only an index or a path it is judged by its result: bytes
mean it read, pixels that it loaded. Text and lists say nothing by themselves: then it counts what the sample has been through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from pipefix.hooks.charges import OWN_DECODED, OWN_RAW
from pipefix.subject.staging import data_stage
from pipefix.vocabulary.stage import Stage


class Unknown(Enum):
    """The answer where only making the call will tell."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN
_PLAIN = (int, float, bool, complex, type(None))


class StageEvidence:
    """Remembers by name what results told of calls whose arguments told nothing."""

    def __init__(self) -> None:
        self.learned: dict[str, Stage | None] = {}

    def of(self, label: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Stage | Unknown | None:
        """The stage of the call ``label`` with these arguments. None: it is the user's own code and no piece of a stage."""
        stage = data_stage(args)
        if stage is None and kwargs:
            stage = data_stage(kwargs.values())
        return stage if stage is not None else self.learned.get(label, UNKNOWN)

    def learn(self, label: str, args: Sequence[Any], kwargs: Mapping[str, Any], phase: int, result: Any) -> None:
        """The first call of a kind whose arguments told nothing gave back ``result``."""
        self.learned[label] = _by_result(result, (*args, *kwargs.values()), phase)


def _by_result(result: Any, values: Sequence[Any], phase: int) -> Stage | None:
    stage = data_stage([result])
    if stage is Stage.DECODE:
        return Stage.STORAGE
    if stage is Stage.AUGMENT:
        return Stage.DECODE
    if all(isinstance(value, _PLAIN) for value in values):
        return None
    return Stage.DECODE if phase == OWN_RAW else Stage.AUGMENT if phase == OWN_DECODED else None
