"""The lines of a file that another process appends to, under its name: also after it was cut or another file took its place."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.files import is_at

LONGEST_LINE = 1_000_000
"""Bytes of a window, in a file or as an endpoint's answer; ours have about a thousand."""


class GrowingFile:
    """Raises OSError or ValueError where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("rb")
        self._rest = b""

    def close(self) -> None:
        self._file.close()

    def lines(self) -> Iterator[bytes]:
        """Those that were completed since they were last asked for."""
        yield from self._complete()
        if self._is_another():
            yield from self._complete()

    def _complete(self) -> Iterator[bytes]:
        try:
            while line := self._file.readline(LONGEST_LINE):
                self._rest += line
                if not self._rest.endswith(b"\n"):
                    break  # It is still being written.
                whole, self._rest = self._rest, b""
                if whole.strip():
                    yield whole
        except OSError as error:
            raise UnreadableFile(f"{self.path} could not be read: {error.strerror or error}.") from error
        if len(self._rest) >= LONGEST_LINE:
            raise UnreadableFile(f"{self.path} is not what pipefix.watch writes: a line is longer than {LONGEST_LINE:,} bytes.")

    def _is_another(self) -> bool:
        """Whether the name stands for another file now, or for a shorter one, which is then read from its beginning."""
        try:
            held = os.fstat(self._file.fileno())
            if not is_at(self._file.fileno(), self.path):
                file = self.path.open("rb")
                self._file.close()
                self._file = file
            elif stat.S_ISREG(held.st_mode) and held.st_size < self._file.tell():
                self._file.seek(0)
            else:
                return False
        except OSError:  # moved away, and nothing has its name yet
            return False
        self._rest = b""
        return True
