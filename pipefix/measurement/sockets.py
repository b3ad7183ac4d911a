"""One folder for the sockets of a measured loader's workers, removed with the loader: a killed worker would leave its own."""

from __future__ import annotations

import multiprocessing
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import process, util
from pathlib import Path
from typing import Any

from pipefix.vocabulary import files

_PREFIX = "pymp-"
"""As multiprocessing names its own."""
_INSIDE = re.compile(r"(listener|pym)-")
"""What multiprocessing names sockets, and files of shared memory, in such a folder."""
_KEY = "tempdir"


class Sockets:
    """The folder of one pool's workers."""

    def __init__(self) -> None:
        self._folder: str | None = None

    @contextmanager
    def given(self, context: Any) -> Iterator[None]:
        """Workers that ``context`` starts meanwhile use it, unless this process has one already, which they would use anyhow."""
        known = process.current_process()._config  # type: ignore[attr-defined]
        if (context or multiprocessing).get_start_method() == "forkserver":
            util.get_temp_dir()  # the server's own socket lies there, and stays when the pool is gone
        if known.get(_KEY) is not None:
            yield
            return
        self._folder = known[_KEY] = tempfile.mkdtemp(prefix=_PREFIX)
        try:
            yield
        finally:
            known[_KEY] = None

    def remove(self) -> None:
        """Once no worker is left."""
        if self._folder is not None:
            with suppress(OSError):  # gone already, or it holds what is not ours
                for name in os.listdir(self._folder):
                    files.remove(Path(self._folder, name), _INSIDE)
                files.remove_empty_folder(Path(self._folder))
            self._folder = None
