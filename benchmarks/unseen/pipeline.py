"""Draws unseen pipelines and writes them as a user would: one file each, its code inline, in a helper function or in a method.

The same file is written twice: once as it is, for the probe, and once with a clock around every part, which says what is true.
"""

from __future__ import annotations

import math
import random
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.unseen.parts import FAMILIES, TO_TENSOR, Part, known

SHORTEST, USUAL, LONGEST = 10e-6, 0.03, 2.0
"""Seconds that making a sample takes: at least, at most in nine of ten pipelines, and at most."""
BATCH_S = 0.06
"""What making a batch takes, about, at most."""
LEADS = 1.6
"""By how much what is to limit is made to lead."""

_HEAD = """
import math, time
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate, get_worker_info
torch.set_num_threads(1)
"""
_CLOCK = """
SPENT = {}

def charge(name, begun):
    SPENT[name] = SPENT.get(name, 0.0) + time.perf_counter() - begun
"""
_SAMPLES = """
class Samples(Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, i):
{item}
"""
_METHOD = """
    def make(self, i):
{body}
        return x
"""
_HELPER = """
def make(i):
{body}
    return x
"""
_GETITEMS = """
    def __getitems__(self, indices):
        return [self[i] for i in indices]
"""
_STREAM = """
class Stream(IterableDataset):
    def __init__(self):
        self.samples = Samples()

    def __iter__(self):
        info = get_worker_info()
        for i in range(info.id if info else 0, 1 << 40, info.num_workers if info else 1):
            yield self.samples[i % LENGTH]
"""
_AROUND = """
class Drawn(Sampler):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        for i in range(self.n):
{sampler}
            yield (i * 7919) % self.n


def collate(samples):
{collate}
    return default_collate(samples)


def {step_name}(batch):
{step}
"""
_STACKED = "    return default_collate(samples)\n"
_STACKED_TIMED = """    begun = time.perf_counter()
    out = default_collate(samples)
    charge('collate', begun)
    return out
"""


@dataclass(frozen=True)
class Unseen:
    """One pipeline, and what is to be true of it."""

    name: str
    family: str
    truth: str
    """The stage that limits; ``sampler`` where drawing indices does."""
    seconds: float
    """That making a sample is to take; some families take longer."""
    form: str
    shape: str
    workers: int
    consumer: str
    sampler: str
    collate: str
    neighbour: bool
    persistent: bool = False
    """Whether workers are kept from epoch to epoch."""
    batch_size: int = 4
    """Chosen by what a sample really takes."""
    repeats: tuple[int, ...] = ()
    """How often each part is done."""
    made_s: float = 0.0
    """Seconds that making a sample really takes."""
    extra: int = 0
    """Rounds of work in the sampler, the collating or the step, where one of those limits."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*known(self.family).parts, TO_TENSOR)


def draw(count: int, seed: int = 0) -> list[Unseen]:
    """``count`` pipelines; the n-th is the same whatever the count, and whichever libraries are here."""
    return [_draw(number, random.Random(f"unseen/{seed}/{number}")) for number in range(count)]


def healthy(count: int, seed: int = 0) -> list[Unseen]:
    """Pipelines as `draw` gives them, but that workers make ahead what a step takes longer to use.

    They are kept from epoch to epoch: some datasets last for two seconds, and starting workers for each is something to gain.
    """
    return [
        replace(
            each, name=f"{each.name.rpartition('-')[0]}-step", truth="step", workers=each.workers or 2, consumer="real",
            persistent=True, sampler="shuffle" if each.sampler == "own" else each.sampler, neighbour=False,
        )
        for each in draw(count, seed)
    ]  # fmt: skip


def _draw(number: int, rng: random.Random) -> Unseen:
    family = FAMILIES[number % len(FAMILIES)]
    truth = rng.choice([part.stage for part in family.parts])
    if family.name == "memory":
        truth = rng.choice(("sampler", "collate", "step", "ipc"))
    elif rng.random() < 0.25:
        truth = rng.choice(("sampler", "collate", "step"))
    longest = LONGEST if rng.random() < 0.1 else USUAL
    return Unseen(
        name=f"{number:03d}-{family.name}-{truth}",
        family=family.name,
        truth=truth,
        seconds=math.exp(rng.uniform(math.log(SHORTEST), math.log(longest))),
        form=rng.choice(("inline", "helper", "method")),
        shape="map" if truth == "sampler" else rng.choice(("map", "map", "map", "stream", "getitems")),
        workers=rng.choice((1, 2)) if truth in ("ipc", "sampler") else rng.choice((0, 0, 1, 2, 2, 4, 8)),
        consumer="real" if truth == "step" else rng.choice(("none", "none", "emulated", "real")),
        sampler="own" if truth == "sampler" else rng.choice(("shuffle", "sequential")),
        collate="own" if truth == "collate" else rng.choice(("default", "default", "own")),
        neighbour=number % 2 == 1,
    )


def tuned(drawn: Unseen, base: Mapping[int, float]) -> Unseen:
    """With so many rounds of the costliest part of the stage in question that it leads, and a sample takes the time that was drawn.

    ``base``: seconds of each part done once.
    """
    parts = drawn.parts
    repeats = [1] * len(parts)
    led = [place for place, part in enumerate(parts) if part.stage == drawn.truth]
    if led:
        first = max(led, key=lambda place: base[place])
        rest: dict[str, float] = {}
        for place, part in enumerate(parts):
            if place != first:
                rest[part.stage] = rest.get(part.stage, 0.0) + base[place]
        rival = max((spent for stage, spent in rest.items() if stage != drawn.truth), default=0.0)
        wanted = max(drawn.seconds - sum(rest.values()), LEADS * rival - rest.get(drawn.truth, 0.0))
        repeats[first] = max(1, math.ceil(wanted / max(base[first], 1e-9) - 0.1))
    seconds = sum(base[place] * count for place, count in enumerate(repeats))
    size = next((size for size in (64, 16, 8, 4) if size * seconds < BATCH_S), 2)
    return replace(drawn, repeats=tuple(repeats), batch_size=size, made_s=seconds)


# -- the file ---------------------------------------------------------------------------------------------------------


def length_of(pipeline: Unseen) -> int:
    """Samples of the dataset: enough for a minute."""
    return max(400, int(60 / max(pipeline.seconds, 1e-3)))


def text(pipeline: Unseen, folder: str, *, timed: bool, length: int | None = None) -> str:
    """The pipeline's file. ``timed``: with a clock around every part, collating, the sampler and the step.

    ``length``: another number of samples than `length_of` says.
    """
    parts = pipeline.parts
    setups = dict.fromkeys(part.setup for part in parts if part.setup)
    repeats = pipeline.repeats or (1,) * len(parts)
    body = "\n".join(_statement(part, repeats[place], place, timed=timed) for place, part in enumerate(parts))
    pieces = [_HEAD, f"D = {folder!r}\nLENGTH = {length or length_of(pipeline)}", *setups, _CLOCK if timed else ""]
    if pipeline.form == "helper":
        pieces.append(_HELPER.format(body=_in(body, 4)))
    item = {"helper": "return make(i)", "method": "return self.make(i)"}.get(pipeline.form, f"{body}\nreturn x")
    pieces.append(_SAMPLES.format(item=_in(item, 8)))
    pieces.append(_METHOD.format(body=_in(body, 8)) if pipeline.form == "method" else "")
    pieces.append({"getitems": _GETITEMS, "stream": _STREAM}.get(pipeline.shape, ""))
    return "\n".join([*pieces, _around(pipeline, timed=timed), _loader(pipeline), ""])


def _in(code: str, by: int) -> str:
    return textwrap.indent(code, " " * by)


def _statement(part: Part, count: int, place: int, *, timed: bool) -> str:
    code = part.code
    if count > 1:
        again = f"    x = before{place}\n" if place else ""
        code = (f"before{place} = x\n" if place else "") + f"for _ in range({count}):\n{again}{_in(code, 4)}"
    return f"begun{place} = time.perf_counter()\n{code}\ncharge({place}, begun{place})" if timed else code


def _around(pipeline: Unseen, *, timed: bool) -> str:
    """Sampler, collating and the step: work in the one that limits."""
    written = {}
    for stage, depth in (("sampler", 12), ("collate", 4), ("step", 4)):
        code = work(pipeline.extra if pipeline.truth == stage else 0)
        written[stage] = _in(f"begun = time.perf_counter()\n{code}\ncharge({stage!r}, begun)" if timed else code, depth)
    around = _AROUND.format(**written, step_name="train_step" if pipeline.consumer == "real" else "not_a_step")
    return around.replace(_STACKED, _STACKED_TIMED) if timed else around


def work(rounds: int) -> str:
    """What the sampler, the collating or the step computes where it limits."""
    return f"s = 0.0\nfor k in range({rounds}):\n    s += math.sin(k)"


def _loader(pipeline: Unseen) -> str:
    how = [f"batch_size={pipeline.batch_size}", f"num_workers={pipeline.workers}"]
    if pipeline.persistent:
        how.append("persistent_workers=True")
    if pipeline.collate == "own":
        how.append("collate_fn=collate")
    if pipeline.shape != "stream":
        how.append("sampler=Drawn(len(dataset))" if pipeline.sampler == "own" else f"shuffle={pipeline.sampler == 'shuffle'}")
    made = "Stream()" if pipeline.shape == "stream" else "Samples()"
    return f"dataset = {made}\nloader = DataLoader(dataset, {', '.join(how)})"
