"""Epochs cut at random points and gone on with elsewhere: the rest of the stream is to be the uninterrupted one.

Over every kind of sampler, worker counts before and after, both kinds of random numbers, worker processes and threads; the state goes
through a file. In every tenth case what is read again is counted, too.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.loader.fast_loader import FastLoader
from tests.loader import pipelines
from tests.loader.test_resume import SAMPLERS, gone_on_with, indices

TITLE = "Epochs gone on with"
ISSUE = "4, bar 8"
MINUTES = 12
QUICK = {"cuts": 6}
WORKERS = (0, 0, 0, 0, 0, 1, 2, 3)
"""Counts are drawn from these: a start of workers takes a tenth of a second."""


def cut(number: int) -> dict[str, Any]:
    """One random cut. What is amiss stands under `wrong`."""
    drawn = random.Random(number)
    name, rng = drawn.choice(sorted(SAMPLERS)), drawn.choice(["torch", "sample", "threads"])
    place, epoch = drawn.randrange(12), drawn.randrange(3)
    before, after = drawn.choice(WORKERS), drawn.choice(WORKERS)
    case = {"sampler": name, "rng": rng, "cut": place, "epoch": epoch, "before": before, "after": after}
    # What a sample draws belongs to its worker under rng="torch", and threads draw nothing: samples are held against each other.
    look, dataset = (list, pipelines.Drawing()) if rng == "sample" else (indices, pipelines.Drawing())
    more: dict[str, Any] = {"rng": rng} if rng != "threads" else {"threads_per_worker": 3}
    if rng == "threads":
        look, dataset = list, pipelines.Tensors(40)
    try:
        gone_on_with(dataset, look, name, place, epoch, {**more, "num_workers": before}, {**more, "num_workers": after})
        if number % 10 == 0:
            read_again(name, place, more, after)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        case["wrong"] = f"{type(error).__name__}: {error}"[:500]
    return case


def read_again(name: str, place: int, more: dict[str, Any], workers: int) -> None:
    """Nothing that lies behind is read after the cut."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "read"
        torch.manual_seed(3)
        whole = FastLoader(pipelines.Tensors(40), **SAMPLERS[name]())
        iterator = iter(whole)
        for _ in range(min(place, len(whole))):
            next(iterator)
        rest = [int(number) for batch in iterator for number in batch.reshape(-1)[:: pipelines.Tensors(40)[0].numel()]]
        torch.manual_seed(3)
        again = FastLoader(pipelines.Tensors(40), **SAMPLERS[name](), **more)
        iterator = iter(again)
        for _ in range(min(place, len(again))):
            next(iterator)
        other = FastLoader(pipelines.Noting(str(note), 40), **SAMPLERS[name](), **more, num_workers=workers)
        other.explain()  # what is looked at before threads begin
        note.write_text("")
        other.load_state_dict(again.state_dict())
        list(other)
        read = sorted(map(int, note.read_text().split()))
        assert read == sorted(rest), f"read {read} for {sorted(rest)}"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cuts", type=int, default=1000, help="how many in all (default 1000)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    torch.set_num_threads(1)
    kept = record.body
    if not kept:
        kept |= {"done": 0, "wrong": [], "by": {}}
    while kept["done"] < options.cuts and not record.over():
        case = cut(kept["done"])
        kept["done"] += 1
        name = f"{case['rng']}, {case['sampler']}"
        kept["by"][name] = kept["by"].get(name, 0) + 1
        if "wrong" in case:
            kept["wrong"].append(case)
            print(case, flush=True)
        if kept["done"] % 50 == 0:
            record.save()
            print(f"{kept['done']} cuts, {len(kept['wrong'])} wrong", file=sys.stderr, flush=True)
    return bool(kept["done"] >= options.cuts)


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_least("random cuts", body["done"], 1000, "{:.0f}"),
        none_of("streams that differ from the uninterrupted one, or read again", len(body["wrong"])),
    ]


def table(body: dict[str, Any]) -> str:
    cells = [[name, *(body["by"].get(f"{way}, {name}", 0) for way in ("torch", "sample", "threads"))] for name in sorted(SAMPLERS)]
    return f"""
In one cut of ten it was counted, too, what the resumed epoch reads: only what lies ahead. Cuts:

{rows(["sampler", '`rng="torch"`', '`rng="sample"`', "threads"], cells)}"""
