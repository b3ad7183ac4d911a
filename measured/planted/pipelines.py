"""Pipelines with planted costs: a frozen description, and the real dataset, loader and consumer that spend what it says.

The costs are real work. How much work a cost takes is found by running the pipeline's own parts and turning their dials
(`measured.planted.tuning`), so a description holds on any machine.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, RandomSampler, Sampler

from measured.planted import augmenting, formats, sources
from measured.planted.augmenting import Rounds
from measured.planted.batching import Collate, FastCollate, Payload
from measured.planted.datasets import Batched, Folder, Inline, MapStyle, Methods, Parts, Stream
from measured.planted.ledger import Watch

VARIANTS = 8
"""Different sample files of a pipeline; an epoch repeats them."""


@dataclass(frozen=True)
class Planted:
    """What is planted. Costs are seconds a sample; with workers ``ipc`` is the hand-over's seconds a sample of delivered time."""

    name: str
    truth: str
    """The stage that limits it, or ``balanced``."""
    costs: dict[str, float]
    workers: int = 0
    batch_size: int = 8
    waits: tuple[str, ...] = ()
    """Stages whose cost is waiting; all others burn CPU."""
    storage: str = "open"
    format: str = "jpeg"
    pieces: int = 1
    transforms: str = "own"
    collate: str = "pad"
    payload: str = "objects"
    shape: str = "map"
    consumer: str = "none"
    """none, emulated (the probe plays it) or real (``train_step`` in the target's file)."""
    sampler: str = "shuffle"
    persistent: bool = False
    unevenness: float = 0.0
    """Spread of sample costs: the sigma of a lognormal."""
    seed: int = 0
    without: tuple[str, ...] = ()
    """Stages really taken out: storage from memory, pixels decoded beforehand, no augmentation, a fast collate."""

    @property
    def step_s(self) -> float:
        return self.costs.get("step", 0.0)


class Step:
    """What consumes a batch: ``amount`` microseconds of waiting, or rounds of small matrix products."""

    def __init__(self, waits: bool) -> None:
        self.waits = waits
        self.amount = 0.0
        # So small that BLAS works in this thread alone: threads of its pool wait for each other, for milliseconds on busy cores.
        self.matrix = np.random.default_rng(3).random((48, 48), dtype=np.float32)

    def __call__(self, batch: Any) -> None:
        watch = Watch()
        if self.waits:
            time.sleep(self.amount / 1e6)
        else:
            values = self.matrix
            for _ in range(round(self.amount)):
                # Its largest eigenvalue: smaller values end as denormals, which some processors are slow at.
                values = (self.matrix @ values) / 24.0
        watch.lap("step", len(batch["labels"]))


class Backwards(Sampler[int]):
    """A sampler of the user's own."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Any:
        return iter(range(len(self.dataset) - 1, -1, -1))

    def __len__(self) -> int:
        return len(self.dataset)


@dataclass
class Pipeline:
    """A description brought to life."""

    planted: Planted
    folder: Path
    source: Any
    decoding: Callable[[bytes], Any]
    rounds: Rounds
    collate: Collate
    payload: Payload
    step: Step
    dataset: Any = None
    loader: DataLoader[Any] = field(init=False)
    pixels: float = 0.0
    step_s: float = 0.0
    """Seconds a sample of the consumer, as tuned."""

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def encode(self, pixels: float) -> None:
        """Write the sample files anew, ``pixels`` large on average."""
        self.pixels = pixels
        planted = self.planted
        for number, factor in enumerate(factors(planted)):
            data = formats.packed(planted.format, max(256.0 * planted.pieces, pixels * factor), planted.pieces, number)
            self.file(number).write_bytes(data)

    def file(self, number: int) -> Path:
        return self.folder / f"class_{number % 2}" / f"sample-{number:02d}.bin"

    def load(self, workers: int | None = None) -> DataLoader[Any]:
        """A loader around this pipeline's dataset, with its settings (or another number of workers)."""
        planted = self.planted
        count = planted.workers if workers is None else workers
        options: dict[str, Any] = {"batch_size": planted.batch_size, "num_workers": count, "collate_fn": self.collate}
        if count and planted.persistent:
            options["persistent_workers"] = True
        if planted.shape != "stream":
            if planted.sampler == "shuffle":
                options["shuffle"] = True
            elif planted.sampler == "own":
                options["sampler"] = Backwards(self.dataset)
            elif planted.sampler == "replacement":
                options["sampler"] = RandomSampler(self.dataset, replacement=True)
        return DataLoader(self.dataset, **options)


class Decoded:
    """What is left of decoding when pixels were decoded beforehand: nothing but finding them, or a copy, as out of a cache."""

    def __init__(self, decode: Callable[[bytes], Any], files: list[str], *, copied: bool) -> None:
        self.copied = copied
        self.held = {_mark(raw): decode(raw) for raw in (Path(file).read_bytes() for file in files)}
        assert len(self.held) == len(set(files))

    def __call__(self, raw: bytes) -> Any:
        value = self.held[_mark(raw)]
        if not self.copied:
            return value  # no transform here changes what it is given
        return value.copy() if hasattr(value, "copy") else value.clone()


def _mark(raw: bytes) -> tuple[int, bytes]:
    """Tells encoded samples apart. Hashing all of one would take as long as a stage does."""
    return len(raw), bytes(raw[::997])


def factors(planted: Planted) -> list[float]:
    """How dear each sample is, compared with the mean."""
    if not planted.unevenness:
        return [1.0] * VARIANTS
    rng = random.Random(planted.seed)
    drawn = [rng.lognormvariate(0, planted.unevenness) for _ in range(VARIANTS)]
    mean = sum(drawn) / len(drawn)
    return [value / mean for value in drawn]


def lay_out(planted: Planted) -> Pipeline:
    """All parts, with their dials at zero."""
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    for name in ("class_0", "class_1"):
        (folder / name).mkdir()
    spread = factors(planted)
    files = [str(folder / f"class_{number % 2}" / f"sample-{number:02d}.bin") for number in range(VARIANTS)]
    collate_style = "wait" if "collate" in planted.waits else planted.collate
    collating = FastCollate if "collate" in planted.without else Collate
    pipeline = Pipeline(
        planted=planted,
        folder=folder,
        source=None,
        decoding=formats.DECODERS[planted.format],
        rounds=Rounds(spread[::-1]),
        collate=collating(collate_style, planted.payload),
        payload=Payload(planted.payload, planted.batch_size),
        step=Step("step" in planted.waits),
    )
    pipeline.encode(256.0 * planted.pieces)
    pipeline.source = sources.SOURCES[planted.storage](files, spread)
    return pipeline


def assemble(pipeline: Pipeline) -> None:
    """The dataset and the loader, from parts whose dials are set."""
    planted = pipeline.planted
    source, decode = pipeline.source, pipeline.decoding
    files = [str(pipeline.file(number)) for number in range(VARIANTS)]
    if "storage" in planted.without:
        source = sources.Memory(files, source.factors)
    if "decode" in planted.without:
        decode = Decoded(decode, files, copied="storage" in planted.without)
    flavour = formats.FLAVOUR[planted.format]
    transform = augmenting.transform_list(flavour, planted.transforms, pipeline.rounds, "augment" in planted.waits)
    if "augment" in planted.without:
        transform = augmenting.Ready(transform, decode(pipeline.source.own(0)))
    length = max(64, min(100_000, round(12.0 / max(1e-4, sum(planted.costs.values()))))) // planted.batch_size * planted.batch_size
    parts = Parts(source, decode, transform, pipeline.payload, length)
    if planted.shape == "inline" and "decode" not in planted.without:
        pipeline.dataset = Inline(parts, planted.format)
    elif planted.shape == "folder":
        pipeline.dataset = Folder(str(pipeline.folder), parts)
    else:
        shapes: dict[str, Callable[[Parts], Any]] = {
            "map": MapStyle,
            "inline": MapStyle,
            "methods": Methods,
            "batched": Batched,
            "stream": Stream,
        }
        pipeline.dataset = shapes[planted.shape](parts)
    pipeline.loader = pipeline.load()
