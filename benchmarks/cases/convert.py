"""How fast `pipefix convert` is: against copying files, against what the cores can do, and against other writers.

``source`` is compared with copying the same tree and bringing it to the disk; ``resized`` with the cores times one core's decode,
resize and encode, measured in the same run; both with the writers of litdata, WebDataset and MosaicML Streaming storing the same
content, where these are installed. Rounds are interleaved. Also: what --dry-run predicts, against what came.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.pictures import copies, pictures
from benchmarks.harness.record import WORK, Record
from benchmarks.harness.turns import ordered
from pipefix.caches import pictures as images
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.estimate import forecast

TITLE = "Conversion"
ISSUE = "3, bar 1"
MINUTES = 15
QUICK = {"pictures": 48, "times": 1, "rounds": 1}
WRITERS = ("litdata", "WebDataset", "MosaicML")
SIZE, QUALITY, WORKERS = 256, 90, 2


def timed(run: Callable[[], object], *folders: Path) -> float:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    os.sync()
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def both_times(runs: dict[str, Callable[[], object]], rounds: int, folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of each, in the middle: until it had ended, and until what it wrote was on the disk too."""
    ended: dict[str, list[float]] = {name: [] for name in runs}
    on_disk: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in ordered(list(runs), number, "alternating"):
            took = timed(runs[name], folder)
            begun = time.perf_counter()
            os.sync()
            ended[name].append(took)
            on_disk[name].append(took + time.perf_counter() - begun)
            print(f"{name}: {took:.2f} s, on the disk after {on_disk[name][-1]:.2f} s", file=sys.stderr)
    return tuple({name: statistics.median(took) for name, took in times.items()} for times in (ended, on_disk))  # type: ignore[return-value]


def rates(files: int, ended: dict[str, float], on_disk: dict[str, float]) -> dict[str, Any]:
    told: dict[str, Any] = {f"{name}, files/s": files / took for name, took in ended.items()}
    told |= {f"convert over {name}": took / ended["convert"] for name, took in ended.items() if name != "convert"}
    return told | {
        f"convert over {name}, both on the disk": took / on_disk["convert"]
        for name, took in on_disk.items()
        if name not in ("convert", "cores alone")
    }


def against_copying(tree: Path, rounds: int) -> dict[str, Any]:
    """Conversion leaves its cache on the disk; copying and the other writers leave that to the system, so both times are told."""
    out = WORK / "out"
    dataset = ImageFolder(tree)
    paths = [path for path, _ in dataset.samples]

    def copy() -> None:
        subprocess.run(["cp", "-r", str(tree), str(out)], check=True)

    runs: dict[str, Callable[[], object]] = {
        "convert": lambda: convert(dataset, recipe_of("lmdb", "source"), out, target="bench", workers=WORKERS),
        "copy": copy,
        **others(paths, read, out),
    }
    return rates(len(paths), *both_times(runs, rounds, out))


def against_cores(tree: Path, rounds: int) -> dict[str, Any]:
    """One core's rate is that of the very same steps, without reading a dataset or writing a cache, while the other core does as much."""
    out = WORK / "out"
    dataset = ImageFolder(tree)
    paths = [path for path, _ in dataset.samples]
    runs: dict[str, Callable[[], object]] = {
        "convert": lambda: convert(dataset, recipe_of("lmdb", "resized", SIZE), out, target="bench", workers=WORKERS),
        "cores alone": lambda: spread(paths),
        **others(paths, smaller, out),
    }
    ended, on_disk = both_times(runs, rounds, out)
    one = statistics.median(timed(lambda: [smaller(path) for path in paths[:300]] and None) for _ in range(rounds)) / 300
    alone = {"one core, files/s": 1 / one, "convert over cores x one core": len(paths) / ended["convert"] / (WORKERS / one)}
    return rates(len(paths), ended, on_disk) | alone


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def smaller(path: str) -> bytes:
    with open(path, "rb") as file:
        image = Image.open(file).convert("RGB")
    return images.encoded(images.smaller(image, SIZE, labels=False), "jpeg", QUALITY, "image", labels=False).data


def spread(paths: list[str]) -> None:
    """All cores on the steps alone."""
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork")) as pool:
        for _ in pool.map(size_of, paths, chunksize=25):
            pass


def size_of(path: str) -> int:
    return len(smaller(path))


def others(paths: list[str], content: Callable[[str], bytes], out: Path) -> dict[str, Callable[[], object]]:
    """The writers of other formats that are installed, each with as many processes as it can use."""
    found: dict[str, Callable[[], object]] = {}
    try:
        import litdata

        found["litdata"] = lambda: litdata.optimize(
            fn=LitSample(content), inputs=paths, output_dir=str(out), num_workers=WORKERS, chunk_bytes="64MB", start_method="fork"
        )
    except ImportError:
        print("litdata is not installed", file=sys.stderr)
    try:
        import webdataset

        def tars() -> None:
            out.mkdir()
            with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork")) as pool:
                shares = [(str(out / f"{number}-%06d.tar"), paths[number::WORKERS], content) for number in range(WORKERS)]
                list(pool.map(write_tar, shares))

        del webdataset
        found["WebDataset"] = tars
    except ImportError:
        print("webdataset is not installed", file=sys.stderr)
    try:
        import streaming

        def shards() -> None:
            out.mkdir()
            with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork")) as pool:
                list(pool.map(write_mds, [(str(out / str(number)), paths[number::WORKERS], content) for number in range(WORKERS)]))

        del streaming
        found["MosaicML"] = shards
    except ImportError:
        print("mosaicml-streaming is not installed", file=sys.stderr)
    return found


class LitSample:
    def __init__(self, content: Callable[[str], bytes]) -> None:
        self.content = content

    def __call__(self, path: str) -> dict[str, Any]:
        return {"image": self.content(path), "label": 0}


def write_tar(share: tuple[str, list[str], Callable[[str], bytes]]) -> None:
    import webdataset

    pattern, paths, content = share
    with webdataset.ShardWriter(pattern, maxsize=64e6, verbose=0) as writer:
        for number, path in enumerate(paths):
            writer.write({"__key__": f"{number:09d}", "jpg": content(path), "cls": 0})


def write_mds(share: tuple[str, list[str], Callable[[str], bytes]]) -> None:
    import streaming

    folder, paths, content = share
    with streaming.MDSWriter(out=folder, columns={"image": "bytes", "label": "int"}, size_limit=64 << 20) as writer:
        for path in paths:
            writer.write({"image": content(path), "label": 0})


def foretold(tree: Path, rounds: int) -> dict[str, Any]:
    """What --dry-run says of a conversion, over what the conversion then was."""
    out = WORK / "out"
    listing = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()])
    told: dict[str, list[float]] = {"size": [], "time": [], "gain": []}
    for _ in range(rounds):
        dataset = ImageFolder(tree, listing)
        recipe = recipe_of("lmdb", "resized", SIZE)
        shutil.rmtree(out, ignore_errors=True)
        said = forecast(dataset, recipe, out, workers=WORKERS)
        took = timed(lambda: convert(dataset, recipe, out, workers=WORKERS) and None, out)  # noqa: B023
        cached = CachedDataset(out, dataset=dataset)
        numbers = list(range(0, len(dataset), max(1, len(dataset) // 600)))
        gains = []
        for _ in range(3):
            own = timed(lambda: [dataset[number] for number in numbers] and None)  # noqa: B023
            ours = timed(lambda: [cached[number] for number in numbers] and None)  # noqa: B023
            gains.append(own / ours)
        told["size"].append(said.bytes / cached.manifest.bytes)
        told["time"].append(said.seconds / took)
        told["gain"].append((said.gain or 0) / statistics.median(gains))
    return {f"predicted {name} over real": " ".join(f"{one:.2f}" for one in ratios) for name, ratios in told.items()}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pictures", type=int, default=1200)
    parser.add_argument("--times", type=int, default=8, help="copies of each picture in the tree")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", choices=tuple(PARTS), action="append", help="measure this; what the last whole run found of the rest is kept"
    )


def measure(options: argparse.Namespace, record: Record) -> None:
    tree = copies(pictures(options.pictures), options.times)
    figures: dict[str, Any] = dict(record.published.get("figures", {})) if options.only else {}
    for name in options.only or PARTS:
        figures[name] = PARTS[name](tree, options.rounds)
    record.body["figures"] = figures


def bars(body: dict[str, Any]) -> list[Bar]:
    figures = body["figures"]
    source, resized, foretold = (figures.get(name, {}) for name in PARTS)
    writers = [
        ratio
        for part in (source, resized)
        for name, ratio in part.items()
        if name.startswith("convert over ") and name.removeprefix("convert over ") in WRITERS
    ]
    apart = [
        abs(float(one) - 1) for name in ("size", "time") for one in str(foretold.get(f"predicted {name} over real", "")).split()
    ]
    return [
        at_least("source: of the rate of copying the tree", source.get("convert over copy"), 0.9),
        at_least("resized: of cores times one core's rate", resized.get("convert over cores x one core"), 0.9),
        at_least("over the quickest of the other writers", min(writers, default=None), 1.0),
        at_most("--dry-run's size and time from what came, worst", max(apart, default=None), 0.15),
    ]


def table(body: dict[str, Any]) -> str:
    lines = []
    for name, told in body["figures"].items():
        lines += [f"## {name}", ""]
        lines += [f"- {key}: {value:.3g}" if isinstance(value, float) else f"- {key}: {value}" for key, value in told.items()]
        lines.append("")
    return "\n".join(lines)


PARTS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "source": against_copying,
    "resized": against_cores,
    "forecast": foretold,
}
