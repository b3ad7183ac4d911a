"""Programs that nobody here wrote, fetched and run as they are: seen, told right, and none the different for it?

Each runs alone and under ``pipefix run``, on data made up for it. A meter of its own, the program's ``sitecustomize`` as far as pipefix
knows, measures what its training loops waited. Nothing of these programs is kept here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.harness.bar import Bar, at_least, at_most, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, WORK, Record

TITLE = "Public programs as they are"
ISSUE = "16, bar 1"
MINUTES = 12
QUICK = {"only": ["mnist/"]}
HOOK = ROOT / "benchmarks" / "programs" / "meter_hook"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", default=[], help="programs whose name contains one of these")
    parser.add_argument(
        "--clones", default=str(WORK / "clones"), help="folder of clones, named owner+name; missing ones are cloned"
    )


# -- made-up data, where each program looks for its own ------------------------------------------------------------------------


def _digits(place: Path, train: int = 3000, test: int = 500) -> None:
    """Files of MNIST's names and format."""
    raw = place / "MNIST" / "raw"
    raw.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for name, count in (("train", train), ("t10k", test)):
        labels = draw.integers(10, size=count, dtype=np.uint8)
        images = (draw.integers(100, size=(count, 28, 28)) + 15 * labels[:, None, None]).astype(np.uint8)
        for kind, array in (("labels-idx1", labels), ("images-idx3", images)):
            head = b"".join(number.to_bytes(4, "big") for number in (0x800 + array.ndim, *array.shape))
            (raw / f"{name}-{kind}-ubyte").write_bytes(head + array.tobytes())


def _photos(place: Path, count: int, side: int = 400) -> None:
    place.mkdir(parents=True)
    draw = np.random.default_rng(count)
    for number in range(count):
        coarse = Image.fromarray(draw.integers(256, size=(side // 10, side // 8, 3), dtype=np.uint8))
        coarse.resize((side, side * 4 // 5), Image.Resampling.BICUBIC).save(place / f"{number:04d}.jpg", quality=90)


def _text(file: Path, words: int = 40_000) -> None:
    draw = np.random.default_rng(0)
    known = ["".join(draw.choice(list("abcdefghijklmnop"), size=draw.integers(2, 9))) for _ in range(500)]
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (" ".join(draw.choice(known, size=12)) for _ in range(words // 12))
    file.write_text("O God, O God!\n" + "\n".join(lines) + "\n")


def _nothing(at: Path) -> None:
    """The program makes its own."""


def _digits_beside(at: Path) -> None:
    _digits(at.parent / "data")


def _digits_inside(at: Path) -> None:
    _digits(at / "data")


def _classes(at: Path) -> None:
    for part, count in (("train", 100), ("val", 20)):
        for name in ("cat", "dog"):
            _photos(at / "data" / part / name, count)


def _scenes(at: Path) -> None:
    for name, count in (("train", 120), ("test", 20)):
        _photos(at / "dataset" / "BSDS300" / "images" / name, count)


def _wikitext(at: Path) -> None:
    for name in ("train", "valid", "test"):
        _text(at / "data" / "made" / f"{name}.txt")


def _input(at: Path) -> None:
    _text(at / "input.txt")


def _tokens(at: Path) -> None:
    (at / "data" / "made").mkdir()
    for name in ("train", "val"):
        (np.arange(100_000) * 31 % 60).astype(np.uint16).tofile(at / "data" / "made" / f"{name}.bin")


@dataclass(frozen=True)
class Program:
    repository: str
    folder: str
    """In the repository, copied before the program is run in it."""
    words: str
    data: Callable[[Path], None]
    """Called with the copy of `folder`."""
    loader: bool = True
    """Whether it has a DataLoader."""
    varies: bool = False
    """Whether numbers that it prints differ from run to run by themselves: times, process numbers, random draws without a seed."""

    @property
    def name(self) -> str:
        return f"{self.repository.split('/')[1]}/{self.folder}/{self.words.split()[0]}"


EXAMPLES, MINGPT, NANOGPT = "pytorch/examples", "karpathy/minGPT", "karpathy/nanoGPT"
_SMALL = "--block_size=64 --batch_size=8 --n_layer=2 --n_head=2 --n_embd=64 --dropout=0.0 --gradient_accumulation_steps=1"
PROGRAMS = [
    Program(EXAMPLES, "mnist", "main.py --epochs 4 --no-accel", _digits_beside),
    Program(EXAMPLES, "mnist_rnn", "main.py --epochs 2", _digits_beside),
    Program(EXAMPLES, "mnist_hogwild", "main.py --epochs 2 --num-processes 1", _digits_beside, varies=True),
    Program(EXAMPLES, "mnist_forward_forward", "main.py --epochs 20 --train_size 2000 --no_accel", _digits_inside, varies=True),
    Program(EXAMPLES, "vae", "main.py --epochs 3 --no-accel", _digits_beside),
    Program(EXAMPLES, "siamese_network", "main.py --epochs 1 --no-accel", _digits_beside, varies=True),
    Program(EXAMPLES, "dcgan", "main.py --dataset fake --niter 1 --ngf 8 --ndf 8 --manualSeed 1", _nothing),
    Program(
        EXAMPLES, "imagenet", "main.py data -a squeezenet1_1 --epochs 1 -b 8 -j 2 --lr 0.001 --seed 1 --no-accel", _classes,
        varies=True,
    ),
    Program(EXAMPLES, "super_resolution", "main.py --upscale_factor 3 --nEpochs 2 --batchSize 4 --threads 2", _scenes),
    Program(
        EXAMPLES, "word_language_model", "main.py --data data/made --epochs 1 --emsize 32 --nhid 32 --use-optimizer", _wikitext,
        loader=False, varies=True,
    ),
    Program(MINGPT, "projects/adder", "adder.py --trainer.max_iters=150 --model.model_type=gpt-nano", _nothing, varies=True),
    Program(
        MINGPT, "projects/chargpt", "chargpt.py --trainer.max_iters=60 --model.model_type=gpt-nano --trainer.num_workers=2", _input,
        varies=True,
    ),
    Program(
        NANOGPT, ".", "train.py --dataset=made --device=cpu --compile=False --eval_iters=5 --log_interval=10 --max_iters=150 "
        f"--lr_decay_iters=150 {_SMALL}", _tokens, loader=False, varies=True,
    ),
]  # fmt: skip


# -- a run ---------------------------------------------------------------------------------------------------------------------


def cloned(repository: str, clones: Path) -> Path | str:
    """The clone, or what kept it from being made."""
    place = clones / repository.replace("/", "+")
    if not place.exists():
        clones.mkdir(parents=True, exist_ok=True)
        words = ["git", "clone", "-q", "--depth", "1", f"https://github.com/{repository}", str(place)]
        made = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        if made.returncode:
            return f"{repository} could not be cloned"
    return place


def started(program: Program, clone: Path, folder: Path, pipefix: list[str] | None) -> subprocess.CompletedProcess[str]:
    """In a copy of its folder, beside data made up for it."""
    at = folder / "copy" / program.repository.replace("/", "+") / program.folder
    shutil.rmtree(folder / "copy", ignore_errors=True)
    shutil.copytree(clone / program.folder, at, ignore=shutil.ignore_patterns(".git"))
    program.data(at)
    command = [sys.executable, *program.words.split()]
    if pipefix is not None:
        command = [sys.executable, "-m", "pipefix", "run", *pipefix, *program.words.split()]
    paths = [str(HOOK), str(clone), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONWARNINGS": "ignore"}
    environment["METER"] = str(folder / "meter")
    return subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True, timeout=600, check=False)


def printed(program: Program, text: str, folder: Path) -> str:
    """What is to be the same from run to run."""
    text = text.replace(str(folder), "")
    return "\n".join(sorted(re.sub(r"[\d.]+(e-\d+)?|nan", "0", text).split("\n"))) if program.varies else text


def tried(program: Program, clones: Path) -> dict[str, Any]:
    clone = cloned(program.repository, clones)
    if isinstance(clone, str):
        return {"name": program.name, "skipped": clone}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone = started(program, clone, folder, None)
        if alone.returncode:
            return {"name": program.name, "skipped": f"does not run here by itself: {alone.stderr.strip().splitlines()[-1][:200]}"}
        for path in folder.glob("meter.*"):
            path.unlink()
        seen = started(program, clone, folder, ["--out", str(folder / "run")])
        metered = [json.loads(path.read_text()) for path in sorted(folder.glob("meter.*"))]
        run = json.loads((folder / "run" / "run.json").read_text())
        same = (seen.returncode, printed(program, seen.stdout, folder)) == (0, printed(program, alone.stdout, folder))
    training = [loop for loop in run["program"]["loops"] if loop["role"] == "training"]
    loops = [loop for loop in training if loop.get("wait_share") and loop["loader"]]
    took = sum(loop["seconds"] for loop in loops)
    metered_s = sum(one["took_s"] for one in metered)
    return {
        "name": program.name,
        "loader": program.loader,
        "same": same,
        "kind": run["verdict"]["kind"],
        "verdict": run["verdict"]["sentence"].replace(str(folder), ""),
        "steps": sum(loop["steps"] for loop in training),
        "seconds": sum(loop["seconds"] for loop in training),
        "told": sum(loop["wait_share"]["value"] * loop["seconds"] for loop in loops) / took if took else None,
        "metered": sum(one["waited_s"] for one in metered) / metered_s if metered_s else None,
        "errors": run["program"].get("errors", []),
    }


def measure(options: argparse.Namespace, record: Record) -> bool:
    done: list[dict[str, Any]] = record.body.setdefault("programs", [])
    wanted = [program for program in PROGRAMS if not options.only or any(part in program.name for part in options.only)]
    for program in wanted:
        if program.name in [one["name"] for one in done]:
            continue
        if record.over():
            return False
        done.append(tried(program, Path(options.clones)))
        record.save()
        print(json.dumps(done[-1]), flush=True)
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    ran = [one for one in body["programs"] if "skipped" not in one]
    apart = [abs(one["told"] - one["metered"]) for one in ran if one["told"] is not None and one["metered"] is not None]
    loaders = [one for one in ran if one["loader"]]
    return [
        at_least("public programs that were run", len(ran), 10, "{:.0f}"),
        none_of("programs whose output or exit code was another", sum(not one["same"] for one in ran)),
        none_of("programs without training steps seen", sum(not one["steps"] for one in ran)),
        none_of("programs with a loader and without a verdict", sum(one["kind"] == "inconclusive" for one in loaders)),
        at_most("told wait share against the meter's, worst", max(apart, default=None), 0.03, "{:.1%}"),
    ]


def table(body: dict[str, Any]) -> str:
    cells = []
    for one in body["programs"]:
        if "skipped" in one:
            cells.append([one["name"], one["skipped"], "", "", ""])
            continue
        shares = ["" if share is None else f"{share:.1%}" for share in (one["told"], one["metered"])]
        same = "the same" if one["same"] else "DIFFERENT"
        cells.append([one["name"], same, f"{one['steps']} in {one['seconds']:.1f} s", one["kind"], " / ".join(shares)])
    return f"""
Programs of public repositories, not edited, on data made up for them, alone and under `pipefix run`. Waits are shares of the training
loops' time; the meter is a `sitecustomize` that knows nothing of pipefix. Where a program's numbers differ from run to run by themselves,
they are left out of what is compared.

{rows(["program", "output and exit code", "training steps seen", "verdict", "waits: told / metered"], cells)}"""
