"""A real pipeline whose stages can be made dearer while it runs: each stage's work is turned up by a factor that workers read."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import socket
import time
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate

STAGES = ("storage", "decode", "augment", "collate", "ipc", "step")
ROUNDS = 10
"""Pieces of work that a stage does where its factor is 1."""
LATENCY = 0.001
PARCEL = 200_000
"""Bytes that are handed over for each of them."""


class Knobs:
    """Factors by stage, in memory that workers and the server share."""

    def __init__(self) -> None:
        self._values = multiprocessing.get_context("fork").RawArray("d", [1.0] * len(STAGES))

    def __getitem__(self, stage: str) -> float:
        return float(self._values[STAGES.index(stage)])

    def __setitem__(self, stage: str, factor: float) -> None:
        self._values[STAGES.index(stage)] = factor

    def rounds(self, stage: str) -> int:
        """Pieces of work: so many on average."""
        return int(ROUNDS * self[stage] + random.random())


class Server:
    """Answers every request with one picture's bytes, after a while: a disk whose latency can be turned up."""

    def __init__(self, knobs: Knobs) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_serve, args=(self._listener, knobs, picture()), daemon=True)
        self._process.start()

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._listener.close()


def _serve(listener: socket.socket, knobs: Knobs, data: bytes) -> None:
    import threading

    def answer(connection: socket.socket) -> None:
        with connection:
            while connection.recv(1):
                time.sleep(LATENCY * knobs["storage"])
                connection.sendall(len(data).to_bytes(4, "big") + data)

    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def picture(side: int = 64) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 255, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


class Photos(Dataset[Any]):
    def __init__(self, knobs: Knobs, address: tuple[str, int]) -> None:
        self.knobs, self.address = knobs, address
        self._connection: socket.socket | None = None
        self._owner = 0

    def __len__(self) -> int:
        return 1_000_000

    def _read(self) -> bytes:
        if self._connection is None or self._owner != os.getpid():
            self._connection = socket.create_connection(self.address)
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._owner = os.getpid()
        self._connection.sendall(b"?")
        size = int.from_bytes(self._receive(4), "big")
        return self._receive(size)

    def _receive(self, count: int) -> bytes:
        assert self._connection is not None
        data = b""
        while len(data) < count:
            data += self._connection.recv(count - len(data))
        return data

    def __getitem__(self, index: int) -> torch.Tensor:
        data = self._read()
        for _ in range(self.knobs.rounds("decode")):
            image = Image.open(io.BytesIO(data)).convert("RGB")
        for _ in range(self.knobs.rounds("augment")):
            resized = image.resize((96, 96), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.asarray(resized).copy())


class Collate:
    """Collating in rounds, and some bytes that have to be pickled and sent."""

    def __init__(self, knobs: Knobs) -> None:
        self.knobs = knobs
        self._parcels: dict[int, bytes] = {}
        """By size: making one is not to be a part of collating."""

    def __call__(self, samples: list[torch.Tensor]) -> Any:
        for _ in range(self.knobs.rounds("collate")):
            batch = torch.stack([sample.float() for sample in samples])
        size = int(ROUNDS * self.knobs["ipc"] * PARCEL)
        if size not in self._parcels:
            self._parcels = {size: bytes(size)}
        return default_collate(samples), self._parcels[size], batch.shape


def loader(knobs: Knobs, address: tuple[str, int], workers: int = 2) -> DataLoader[Any]:
    return DataLoader(
        Photos(knobs, address), batch_size=8, num_workers=workers, collate_fn=Collate(knobs), multiprocessing_context="fork"
    )


def step(knobs: Knobs, seconds: float = 0.008) -> None:
    """A training step that computes."""
    until = time.perf_counter() + seconds * knobs["step"]
    while time.perf_counter() < until:
        pass
