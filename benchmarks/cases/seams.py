"""What a seam adds to a call: every kind of seam, timed bare and through the timer in turn, medians of many rounds."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import h5py
import lmdb
import numpy as np
import torch
from PIL import Image
from torchvision.io import decode_image, read_file
from torchvision.transforms import functional

from benchmarks.harness.bar import Bar, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.hooks.install import install_all
from pipefix.hooks.numpy import touch
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.measurement.sample_maker import CPU_EVERY
from pipefix.subject.user_code import UserCodeHooks
from pipefix.vocabulary.stage import Stage

TITLE = "What a seam adds to a call"
ISSUE = "2, bar 5"
MINUTES = 1
QUICK = {"rounds": 2, "calls": 10}
CPU_ONE_IN = CPU_EVERY
MODES = ("bare", "passing", "wall", "cpu")


class Scaled:
    """A user's dataset with an operation and a method of its own."""

    def __init__(self) -> None:
        self.transforms = [Half()]

    def prepared(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels


class Half:
    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels


def install(timer: SampleTimer, patches: Patches) -> None:
    """As a probe does: the libraries, then what the dataset holds."""
    install_all(timer, patches)
    UserCodeHooks(timer, patches).dataset(OWN)


OWN = Scaled()


def calls(folder: Path, touched: Callable[[Any], Any]) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Each seam's cheapest real call, and how many operations it is.

    ``touched`` is what bare calls do to a mapped result: seams bring its pages in under the clock, and that is work, no cost.
    """
    pixels = np.zeros((8, 8, 3), np.uint8)
    tensor = torch.zeros(3, 8, 8, dtype=torch.uint8)
    path = folder / "f"
    path.write_bytes(bytes(64))
    png = folder / "p.png"
    Image.fromarray(pixels).save(png)
    png_bytes = png.read_bytes()
    png_tensor = torch.frombuffer(bytearray(png_bytes), dtype=torch.uint8)
    np.save(folder / "m.npy", np.zeros((64, 8)))
    mapped = np.load(folder / "m.npy", mmap_mode="r")
    image = Image.fromarray(pixels)
    held = open(path, "rb", buffering=0)  # noqa: SIM115
    environment = lmdb.open(str(folder / "db"))
    with environment.begin(write=True) as writing:
        writing.put(b"k", b"v")
    transaction = environment.begin()
    with h5py.File(folder / "h.h5", "w") as file:
        file["x"] = np.zeros((4, 4))
    table = h5py.File(folder / "h.h5")["x"]
    squeezed, pickled = zlib.compress(b"x"), pickle.dumps(1)

    def open_and_read() -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def raw_read() -> bytes:
        held.seek(0)
        return held.read(64)

    return {
        "tap alone": (1, int),
        "open and read a file": (2, open_and_read),
        "raw read": (1, raw_read),
        "os.stat": (1, lambda: os.stat(path)),
        "PIL open and load": (2, lambda: Image.open(io.BytesIO(png_bytes)).load()),
        "PIL method": (1, lambda: image.transpose(Image.Transpose.ROTATE_90)),
        "cv2.imread": (3, lambda: cv2.imread(str(png))),
        "cv2 function": (1, lambda: cv2.flip(pixels, 1)),
        "torchvision.io.read_file": (1, lambda: touched(read_file(str(path)))),
        "torchvision.io.decode_image": (1, lambda: decode_image(png_tensor)),
        "torchvision functional": (1, lambda: functional.hflip(tensor)),
        "numpy memmap index": (1, lambda: touched(mapped[3])),
        "lmdb get": (1, lambda: transaction.get(b"k")),
        "h5py slice": (1, lambda: table[1]),
        "the user's operation": (1, lambda: OWN.transforms[0](tensor)),
        "the user's method": (1, lambda: OWN.prepared(tensor)),
        "json.loads": (1, lambda: json.loads("1")),
        "pickle.loads": (1, lambda: pickle.loads(pickled)),
        "zlib.decompress": (1, lambda: zlib.decompress(squeezed)),
    }


def added_by_seams(folder: Path, rounds: int, count: int) -> dict[str, dict[str, float]]:
    """Bare and cut in turn, within a fraction of a second of each other."""
    timer, patches = SampleTimer(), Patches()
    timer.active = True
    install(timer, patches)

    def brought_in(result: Any) -> None:
        touch(np.asarray(result))

    for name in ("cut", "passing", "bare"):
        (folder / name).mkdir()
    cut, passing = calls(folder / "cut", lambda result: result), calls(folder / "passing", brought_in)
    names = {name: borders for name, (borders, _) in cut.items()}
    patches.undo()
    bare = calls(folder / "bare", brought_in)
    tables = {"bare": bare, "passing": passing, "wall": cut, "cpu": cut}
    spent: dict[str, dict[str, list[float]]] = {name: {mode: [] for mode in MODES} for name in names}
    for _ in range(rounds):
        for name in names:
            for mode in MODES:
                spent[name][mode].append(_one(timer, patches, name, mode, tables[mode], count))
    patches.undo()
    result = {}
    for name, borders in names.items():
        added = {mode: _added(spent[name], mode) * 1e6 / borders for mode in MODES[1:]}
        added["mixed"] = added["wall"] + (added["cpu"] - added["wall"]) / CPU_ONE_IN
        result[name] = {key: round(value, 3) for key, value in added.items()}
    return result


def _one(
    timer: SampleTimer, patches: Patches, name: str, mode: str, table: dict[str, tuple[int, Callable[[], Any]]], count: int
) -> float:
    if mode != "bare" and not patches.installed:
        install(timer, patches)
    if mode == "bare":
        patches.undo()
    call = table[name][1]
    timed = (lambda: timer.timed_call(Stage.AUGMENT, "bench", call)) if name == "tap alone" and mode != "bare" else call
    timed()
    if mode in ("wall", "cpu"):
        timer.begin(0, cpu=mode == "cpu")
    begun = time.perf_counter()
    for _ in range(count):
        timed()
    spent = (time.perf_counter() - begun) / count
    if mode in ("wall", "cpu"):
        timer.end()
    return spent


def _added(spent: dict[str, list[float]], mode: str) -> float:
    """The median of what one round's timed calls took beyond the same round's bare ones."""
    return statistics.median(timed - bare for timed, bare in zip(spent[mode], spent["bare"], strict=True))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=60, help="interleaved rounds (default 60)")
    parser.add_argument("--calls", type=int, default=100, help="calls a round (default 100)")


def measure(options: argparse.Namespace, record: Record) -> None:
    with tempfile.TemporaryDirectory() as folder:
        record.body["us"] = added_by_seams(Path(folder), options.rounds, options.calls)
    record.body["cpu_clock_one_in"] = CPU_ONE_IN


def bars(body: dict[str, Any]) -> list[Bar]:
    worst = max(body["us"], key=lambda name: body["us"][name]["mixed"])
    return [at_most(f"µs that a seam adds to a call, worst of {len(body['us'])} ({worst})", body["us"][worst]["mixed"], 2.0)]


def table(body: dict[str, Any]) -> str:
    one_in = f"one in {body['cpu_clock_one_in']}"
    cells = [[name, *(f"{cost[mode]:.2f}" for mode in ("passing", "wall", "cpu", "mixed"))] for name, cost in body["us"].items()]
    return f"""
µs added to one operation: where no sample is under the clock, timed by wall clock, by wall and processor clock, and with the processor
clock on for {one_in} samples, as a probe has it (the bar). Calls are made over and over; between a sample's own work, which empties the
processor's caches, they cost two to three times as much, and that is what a probe subtracts.

{rows(["seam", "passing", "wall", "wall and processor", one_in], cells)}"""
