"""Epochs gone on with by other numbers of ranks: four, then three, then six, each stopped at a random point.

Every rank is a process with gloo, whose sampler learns its place from it. All that the ranks of the three jobs were given is counted.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, DistributedSampler

import pipefix
from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.caches.dataset import CachedDataset
from pipefix.loader.fast_loader import FastLoader

TITLE = "Epochs gone on with by other numbers of ranks"
ISSUE = "20, bar 1"
MINUTES = 10
QUICK = {"points": 4}
WORLDS = (4, 3, 6)
SAMPLES = 211
SOURCES = ("map-style", "rows in Parquet")


class Numbered(Dataset[Any]):
    """Each sample tells its index."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, int]:
        return {"number": index}


def rank_of(job: dict[str, Any], rank: int, dataset: Any, folder: str) -> None:
    """One rank of a job: it goes on where the job before stopped, and rank 0 notes what all were given."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    place = Path(folder)
    dist.init_process_group("gloo", init_method=f"file://{place}/meet-{job['number']}", rank=rank, world_size=job["world"])
    sampler = DistributedSampler(dataset, seed=job["seed"], shuffle=job["shuffle"])
    sampler.set_epoch(job["epoch"])
    loader: Any = FastLoader(dataset, batch_size=job["batch_size"], sampler=sampler, num_workers=job["workers"])
    before = place / f"state-{job['number'] - 1}"
    if before.exists():
        loader.load_state_dict(torch.load(before))
    given: list[int] = []
    iterator = iter(loader)
    for batch in iterator:
        given += batch["number"].tolist()
        if job["steps"] is not None and len(given) >= job["steps"] * job["batch_size"]:
            break
    everything: list[Any] = [None] * job["world"]
    dist.all_gather_object(everything, given)
    if rank == 0:
        torch.save(loader.state_dict(), place / f"state-{job['number']}")
        torch.save([number for one in everything for number in one], place / f"given-{job['number']}")
    dist.barrier()
    dist.destroy_process_group()


def point(number: int, datasets: dict[str, Any]) -> dict[str, Any]:
    """One epoch, cut at two random points."""
    drawn = random.Random(number)
    source = SOURCES[number % len(SOURCES)]
    common = {"seed": drawn.randrange(1000), "epoch": drawn.randrange(3), "shuffle": drawn.random() < 0.8}
    context = multiprocessing.get_context("fork")
    given: collections.Counter[int] = collections.Counter()
    rest, padding, jobs = SAMPLES, 0, []
    with tempfile.TemporaryDirectory() as folder:
        for place, world in enumerate(WORLDS):
            size, last = drawn.randint(1, 5), place == len(WORLDS) - 1
            steps = None if last else drawn.randint(1, max(1, 80 // (world * size)))
            job = {**common, "number": place, "world": world, "batch_size": size, "steps": steps}
            job["workers"] = drawn.choice([0, 0, 0, 1])
            jobs.append(f"{world} ranks x {size} x {steps or 'all'}")
            if last:
                padding = -rest % world
            else:
                rest -= world * size * (steps or 0)
            crew = [context.Process(target=rank_of, args=(job, rank, datasets[source], folder)) for rank in range(world)]
            for one in crew:
                one.start()
            for one in crew:
                one.join(100)
            if any(one.exitcode for one in crew):
                return {"source": source, "jobs": jobs, "wrong": f"ranks ended with {[one.exitcode for one in crew]}"}
            given.update(torch.load(Path(folder) / f"given-{place}"))
    lost = SAMPLES - len(given)
    doubled = sum(given.values()) - len(given) - padding
    found: dict[str, Any] = {"source": source, "jobs": jobs, "lost": lost, "doubled": doubled, "padding": padding}
    if lost or doubled:
        found["wrong"] = f"{lost} lost, {doubled} doubled"
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=int, default=200, help="epochs that are cut (default 200)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    done: list[dict[str, Any]] = record.body.setdefault("points", [])
    warnings.simplefilter("ignore", DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder:
        pipefix.convert(Numbered(), to="parquet", store="rows", out=folder + "/cache")
        datasets = dict(zip(SOURCES, (Numbered(), CachedDataset(folder + "/cache")), strict=True))
        while len(done) < options.points:
            if record.over():
                return False
            done.append(point(len(done), datasets))
            if "wrong" in done[-1]:
                print(done[-1], flush=True)
            if len(done) % 20 == 0:
                record.save()
                print(f"{len(done)} points, {sum('wrong' in one for one in done)} wrong", file=sys.stderr, flush=True)
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    done = body["points"]
    return [
        at_least("epochs cut at two random points", len(done), 200, "{:.0f}"),
        none_of("samples lost", sum(one.get("lost", 0) for one in done)),
        none_of("samples doubled, torch's own padding apart", sum(one.get("doubled", 0) for one in done)),
        none_of("epochs that went wrong in any way", sum("wrong" in one for one in done)),
    ]


def table(body: dict[str, Any]) -> str:
    cells = []
    for source in SOURCES:
        those = [one for one in body["points"] if one["source"] == source]
        cells.append([source, len(those), *(sum(one.get(name, 0) for one in those) for name in ("lost", "doubled", "padding"))])
    return f"""
{SAMPLES} samples, {" then ".join(f"{world} ranks" for world in WORLDS)}; batch sizes of 1 to 5, in order or shuffled, epochs 0 to 2, with and without a
worker. Padding is `DistributedSampler`'s own: the last job's ranks get equally many samples.

{rows(["dataset", "epochs", "lost", "doubled", "padding"], cells)}"""
