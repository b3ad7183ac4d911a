"""A folder as a store (``file://``): for a share that several machines mount, and what the others are tried against."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
        try:
            data = read_regular(self.folder / name)
        except FileNotFoundError:
            raise NoSuchObject(name) from None
        except OSError as error:
            raise self._unreadable(name, error) from error
        self.ledger.count("get", received=len(data))
        return data

    def ranges(self, spans: Sequence[Span]) -> list[bytes]:
        found = []
        for name, begin, length in spans:
            try:
                with open_regular(self.folder / name) as file:
                    found.append(os.pread(file.fileno(), length, begin))
            except FileNotFoundError:
                raise NoSuchObject(name) from None
            except OSError as error:
                raise self._unreadable(name, error) from error
        self.ledger.count("range", requests=len(spans), received=sum(map(len, found)))
        return found

    def put(self, name: str, data: bytes | Path) -> None:
        path, told = self.folder / name, data.read_bytes() if isinstance(data, Path) else data
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, told)
        except OSError as error:
            raise self._unreadable(name, error) from error
        self.ledger.count("put", sent=len(told))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self.folder / name
        self.ledger.count("put", sent=len(data))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return write_new(path, data)
        except OSError as error:
            raise self._unreadable(name, error) from error

    def list(self) -> dict[str, int]:
        self.ledger.count("list")
        found: dict[str, int] = {}
        try:
            inside = list(os.scandir(self.folder)) if self.folder.exists() else []
            for entry in inside:
                if entry.is_dir(follow_symlinks=False):
                    inside_it = [(f"{entry.name}/{each.name}", each) for each in os.scandir(entry.path)]
                else:
                    inside_it = [(entry.name, entry)]
                for name, each in inside_it:
                    if not DRAFT.match(each.name):
                        found[name] = each.stat(follow_symlinks=False).st_size
        except OSError as error:
            raise self._unreadable("", error) from error
        return found

    def _unreadable(self, name: str, error: OSError) -> UnreadableFile:
        return UnreadableFile(
            f"{self.url}/{name} cannot be reached: {error.strerror or error}.",
            advice=f"Check the path and its permissions: {self.folder}",
        )
