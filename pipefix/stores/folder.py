"""A folder as a store (``file://``): for a share that several machines mount, and for tests of the other stores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pipefix.stores.store import NoSuchObject, RequestLedger, Span
from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.files import DRAFT, open_regular, read_regular, write_new, write_whole


class FolderStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file://{folder}"
        self.ledger = RequestLedger()

    def get(self, name: str) -> bytes:
        with self._told(name):
            data = read_regular(self.folder / name)
        self.ledger.count("get", received=len(data))
        return data

    def ranges(self, spans: Sequence[Span]) -> list[bytes]:
        parts = []
        for name, begin, length in spans:
            with self._told(name), open_regular(self.folder / name) as file:
                parts.append(os.pread(file.fileno(), length, begin))
        self.ledger.count("range", requests=len(spans), received=sum(map(len, parts)))
        return parts

    def put(self, name: str, data: bytes | Path, *, if_absent: bool = False) -> bool:
        path, content = self.folder / name, data.read_bytes() if isinstance(data, Path) else data
        self.ledger.count("put", sent=len(content))
        with self._told(name):
            path.parent.mkdir(parents=True, exist_ok=True)
            if if_absent:
                return write_new(path, content)
            write_whole(path, content)
        return True

    def list(self) -> dict[str, int]:
        self.ledger.count("list")
        sizes: dict[str, int] = {}
        with self._told(""):
            for entry in os.scandir(self.folder) if self.folder.exists() else ():
                with suppress(FileNotFoundError):  # removed by somebody else while this looks
                    inside = os.scandir(entry) if entry.is_dir(follow_symlinks=False) else (entry,)
                    for file in inside:
                        if not DRAFT.match(file.name):
                            with suppress(FileNotFoundError):
                                sizes[os.path.relpath(file.path, self.folder)] = file.stat(follow_symlinks=False).st_size
        return sizes

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """What the system says of an object's file, in the words of a store."""
        try:
            yield
        except FileNotFoundError:
            raise NoSuchObject(name) from None
        except OSError as error:
            raise UnreadableFile(
                f"{self.url}/{name} cannot be reached: {error.strerror or error}.",
                advice=f"Check the path and its permissions: {self.folder}",
            ) from error
