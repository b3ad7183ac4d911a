"""Where planted samples come from: cached files read in the ways people read them, or a server that makes the reader wait.

Every source answers ``read(index)`` with the bytes of one sample. ``amount`` is the dial: further blocks read beside the sample's
own file (all really read, from files that lie in the page cache), or microseconds that the server waits before it answers.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import requests

from measured.planted import server

BLOCK = 256 * 1024
BLOCKS = 64


@functools.cache
def block_files() -> tuple[list[str], str]:
    """Files that every planted pipeline reads: 64 blocks one by one, and the same blocks in one shard (33 MB, made once)."""
    folder = Path(tempfile.gettempdir(), f"pipefix-planted-blocks-{os.getuid()}")
    if not folder.is_dir():
        draft = Path(tempfile.mkdtemp(prefix="planted-blocks-"))
        noise = os.urandom(BLOCK)
        for number in range(BLOCKS):
            (draft / f"block-{number:02d}.bin").write_bytes(noise[number:] + noise[:number])
        (draft / "shard.bin").write_bytes(noise * BLOCKS)
        try:
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft)  # another process was quicker
    return [str(Path(folder, f"block-{number:02d}.bin")) for number in range(BLOCKS)], str(Path(folder, "shard.bin"))


class Source:
    """The sample's own file, and more work of the same kind."""

    amount: float = 0.0

    def __init__(self, files: list[str], factors: list[float]) -> None:
        self.files = files
        self.factors = factors
        """How much more or less than ``amount`` each sample asks for."""

    def wanted(self, index: int) -> float:
        return self.amount * self.factors[index % len(self.factors)]

    def blocks_of(self, index: int) -> list[int]:
        """The blocks of one sample: a fraction of a block is asked for by some samples and not by others."""
        wanted = self.wanted(index)
        count = int(wanted) + ((index * 7919 % 1000) / 1000 < wanted % 1)
        return [(index * 5 + step) % BLOCKS for step in range(count)]

    def own(self, index: int) -> bytes:
        with open(self.files[index % len(self.files)], "rb") as file:
            return file.read()

    def read(self, index: int) -> bytes:
        raise NotImplementedError


class OpenedFiles(Source):
    """Many files, each opened and read whole."""

    def __init__(self, files: list[str], factors: list[float]) -> None:
        super().__init__(files, factors)
        self.parts = block_files()[0]

    def read(self, index: int) -> bytes:
        for number in self.blocks_of(index):
            with open(self.parts[number], "rb") as file:
                file.read()
        return self.own(index)


class PathFiles(OpenedFiles):
    """The same through pathlib."""

    def read(self, index: int) -> bytes:
        for number in self.blocks_of(index):
            Path(self.parts[number]).read_bytes()
        return Path(self.files[index % len(self.files)]).read_bytes()


class ArrayFiles(OpenedFiles):
    """The same through numpy."""

    def read(self, index: int) -> bytes:
        for number in self.blocks_of(index):
            np.fromfile(self.parts[number], dtype=np.uint8)
        return self.own(index)


class Shard(Source):
    """Ranges of one large file that stays open: seek and read."""

    def __init__(self, files: list[str], factors: list[float]) -> None:
        super().__init__(files, factors)
        self.path = block_files()[1]
        self._file: Any = None
        self._pid = 0

    def read(self, index: int) -> bytes:
        if self._file is None or self._pid != os.getpid():
            self._file, self._pid = open(self.path, "rb"), os.getpid()  # noqa: SIM115
        for number in self.blocks_of(index):
            self._file.seek(number * BLOCK)
            self._file.read(BLOCK)
        return self.own(index)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": None}


class Ranges(Shard):
    """The same by descriptor: ``os.pread``."""

    def read(self, index: int) -> bytes:
        if self._file is None or self._pid != os.getpid():
            self._file, self._pid = os.open(self.path, os.O_RDONLY), os.getpid()
        for number in self.blocks_of(index):
            os.pread(self._file, BLOCK, number * BLOCK)
        return self.own(index)


class Remote(Source):
    """A source that waits. ``amount`` is the server's delay in microseconds; a part of each sample comes from there."""

    size = 4096

    def __init__(self, files: list[str], factors: list[float]) -> None:
        super().__init__(files, factors)
        self.port = server.port()


class SocketSource(Remote):
    """A connection of its own for each process, kept open."""

    def __init__(self, files: list[str], factors: list[float]) -> None:
        super().__init__(files, factors)
        self._connection: socket.socket | None = None
        self._pid = 0

    def read(self, index: int) -> bytes:
        if self.amount > 0:
            self.ask(f"/{self.wanted(index):.0f}/{self.size}\n".encode())
        return self.own(index)

    def ask(self, line: bytes) -> bytes:
        if self._connection is None or self._pid != os.getpid():
            self._connection, self._pid = socket.create_connection(("127.0.0.1", self.port)), os.getpid()
        self._connection.sendall(line)
        answer = b""
        while len(answer) < self.size:
            piece = self._connection.recv(65536)
            if not piece:
                raise ConnectionError("the waiting server is gone")
            answer += piece
        return answer

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connection": None}


class WebSource(Remote):
    """One HTTP request a sample, through the standard library."""

    def read(self, index: int) -> bytes:
        if self.amount > 0:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{self.wanted(index):.0f}/{self.size}") as response:
                response.read()
        return self.own(index)


class RequestsSource(Remote):
    """One HTTP request a sample, through a `requests` session for each process."""

    def __init__(self, files: list[str], factors: list[float]) -> None:
        super().__init__(files, factors)
        self._session: requests.Session | None = None
        self._pid = 0

    def read(self, index: int) -> bytes:
        if self._session is None or self._pid != os.getpid():
            self._session, self._pid = requests.Session(), os.getpid()
            self._session.trust_env = False
        if self.amount > 0:
            self._session.get(f"http://127.0.0.1:{self.port}/{self.wanted(index):.0f}/{self.size}").content  # noqa: B018
        return self.own(index)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None}


class Memory(Source):
    """What is left when the files were moved to memory: a lookup."""

    def __init__(self, files: list[str], factors: list[float]) -> None:
        super().__init__(files, factors)
        self.held = [Path(file).read_bytes() for file in files]

    def read(self, index: int) -> bytes:
        return self.held[index % len(self.held)]


CPU_SOURCES: dict[str, type[Source]] = {
    "open": OpenedFiles,
    "pathlib": PathFiles,
    "fromfile": ArrayFiles,
    "shard": Shard,
    "pread": Ranges,
}
WAITING_SOURCES: dict[str, type[Source]] = {"socket": SocketSource, "urllib": WebSource, "requests": RequestsSource}
SOURCES: dict[str, type[Source]] = CPU_SOURCES | WAITING_SOURCES | {"memory": Memory}
GUESS = {"open": 1 / 22e-6, "pathlib": 1 / 22e-6, "fromfile": 1 / 30e-6, "shard": 1 / 16e-6, "pread": 1 / 16e-6}
"""Blocks a second, to start the tuning from; the waiting sources take microseconds."""
