"""Lists samples that could not be read, a line each in ``quarantine.jsonl``; raises where they are too many."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

from pipefix.loader.policy.read_policy import QuarantinedSample
from pipefix.vocabulary.quantity import counted, percent

FEW = 1000
"""Samples of an epoch before which a cluster of bad ones is not taken for the rule."""


class TooManyBadSamples(RuntimeError):
    """More samples cannot be read than ``max_bad`` allows."""


class Quarantine:
    def __init__(self, path: str | os.PathLike[str] | None, max_bad: float, length: int | None) -> None:
        self.path, self.max_bad, self.length = None if path is None else Path(path), max_bad, length
        """Samples of an epoch, where it is known."""
        self.found: list[QuarantinedSample] = []
        """In this epoch."""

    def add(self, bad: tuple[QuarantinedSample, ...], *, epoch: int, samples_asked: int) -> None:
        """``samples_asked``: samples asked for in this epoch so far."""
        self.found.extend(bad)
        self._write(bad, epoch)
        if len(self.found) > self.max_bad * max(samples_asked, min(FEW, self.length or FEW)):
            first = self.found[0]
            share = f"max_bad={self.max_bad:g} ({percent(self.max_bad)})"
            where = f", {first.source}" if first.source else ""
            line = f" ({first.where})" if first.where else ""
            listed = f"All of them are in {self.path}. " if self.path is not None else ""
            raise TooManyBadSamples(
                f"{len(self.found)} of about {samples_asked} samples could not be read, more than {share} allows. "
                f"The first is sample {first.index}{where}: {first.error}{line}. {listed}"
                f"Mend the samples, or allow more with FastLoader(..., max_bad={min(1, max(0.01, 5 * self.max_bad)):g})."
            )

    def _write(self, bad: tuple[QuarantinedSample, ...], epoch: int) -> None:
        if self.path is None:
            return
        lines = "".join(json.dumps({"epoch": epoch, **sample._asdict()}, ensure_ascii=False) + "\n" for sample in bad)
        try:
            # A name that is not UTF-8 has characters of its own for such bytes, which JSON writes as \udc80 and the like.
            with open(self.path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(lines)
        except OSError as error:
            warnings.warn(
                f"The samples that could not be read cannot be noted in {self.path}: {error.strerror}. "
                'Name a file in a folder of yours, FastLoader(..., quarantine="FOLDER/quarantine.jsonl"), or None.',
                RuntimeWarning,
                stacklevel=2,
            )
            self.path = None

    def sentence(self) -> str:
        if not self.found:
            return ""
        where = f"; see {self.path}" if self.path is not None else ""
        return f"{counted(len(self.found), 'sample')} could not be read{where}."
