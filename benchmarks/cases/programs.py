"""Programs in the shapes of public ones, run as they are: seen, told right, and none the different for it?

Each program of ``benchmarks/programs`` runs alone and under ``pipefix run``. Its waits are also measured by a meter of its own, inside
the program. Those that are deterministic run a third time with experiments in the middle of training.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, at_most, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, Record
from pipefix.programs.launch import hooked

TITLE = "Programs as they are"
ISSUE = "16, bars 1 to 3"
MINUTES = 20
QUICK = {"only": ["gan"], "repeats": 1}
FOLDER = ROOT / "benchmarks" / "programs"
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
PROGRAMS: dict[str, list[str]] = {
    "argparse_main": ["argparse_main.py", "--lr", "0.1"],
    "module_level": ["module_level.py"],
    "tuple_model": ["tuple_model.py"],
    "gan": ["gan.py"],
    "evaluation_inside": ["evaluation_inside.py"],
    "memmap_batches": ["memmap_batches.py"],
    "prefetching_wrapper": ["prefetching_wrapper.py"],
    "endless_loader": ["endless_loader.py"],
    "lightning_trainer": ["lightning_trainer.py"],
    "transformers_trainer": ["transformers_trainer.py"],
    "accelerate_two": [*TORCHRUN, "accelerate_two.py"],
    "two_ranks": [*TORCHRUN, "two_ranks.py"],
    "console_command": ["sh", "console_command.sh"],
    "spawned_workers": ["spawned_workers.py"],
}
NEEDS = {"lightning_trainer": "lightning", "transformers_trainer": "transformers", "accelerate_two": "accelerate"}
RANKS = ("accelerate_two", "two_ranks")
NO_LOADER = ("memmap_batches",)
STEPS = {"20 ms": 0.02, "1 ms": 0.001}
PACED = """\
import json, sys, time, torch
from torch.optim import optimizer as hooks
from torch.utils.data import DataLoader, TensorDataset, dataloader
torch.set_num_threads(1)
seconds, steps, pairs = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.ones(1, 4).expand(2 * (steps + 1) * (pairs + 1), 4)), batch_size=1)
ours = [(dataloader._SingleProcessDataLoaderIter.__mro__[1], "__next__"), (torch.autograd, "backward")]
registered = [hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks]
batches = iter(loader)

def block():
    spun = 0.0
    for number in range(steps + 1):
        if number == 1: begun = time.perf_counter()  # the first step after a switch finds nothing cached
        (x,) = next(batches)
        optimizer.zero_grad(); net(x).sum().backward(); optimizer.step()
        from_here = time.perf_counter()
        while time.perf_counter() < from_here + seconds: pass
        if number: spun += time.perf_counter() - from_here
    return time.perf_counter() - begun - spun

noting = {(owner, name): getattr(owner, name) for owner, name in ours}, [dict(known) for known in registered]
alone = {at: function.__wrapped__ for at, function in noting[0].items()}, [{} for known in registered]
assert all(noting[1])

def switched(functions, hooked):
    for (owner, name), function in functions.items(): setattr(owner, name, function)
    for known, these in zip(registered, hooked): known.clear(); known.update(these)

found = {"alone": [], "pipefix": []}
for pair in range(pairs):
    for arm in sorted(found, reverse=pair % 2):
        switched(*(noting if arm == "pipefix" else alone))
        found[arm].append(block())
switched(*noting)
print(json.dumps(found))
"""
"""Steps that spin for so long besides a little training; in every second block of them what notes them is taken out of torch. Told:
seconds of blocks beside the spinning, whose length is fixed. Blocks of one process in turn, because processes, and one second and the
next, differ by more than noting costs. The notes that are written every half second are among what is told; starts of epochs are not."""
BLOCK_SECONDS = 0.1
"""Of a block's spinning."""
PAIRS = 30
"""Of blocks, a turn."""
TRIMMED = 0.2
"""Part of the pairs left out at each end: other programs run now and then."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", default=[], help="programs whose name contains one of these")
    parser.add_argument("--repeats", type=int, default=9, help="turns of each program that costs are measured on (default 9)")


def started(words: list[str], folder: Path, pipefix: list[str] | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """``pipefix``: options of ``pipefix run``; None without it. ``variables``: of the environment, besides."""
    command = [sys.executable, *words] if words[0] != "sh" else words
    if pipefix is not None:
        command = [sys.executable, "-m", "pipefix", "run", *pipefix, *words]
    paths = [str(FOLDER), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHON": sys.executable}
    environment |= {"METER": str(folder / "meter"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **variables}
    return subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=300, check=False)


def tried(name: str) -> dict[str, Any]:
    words = PROGRAMS[name]
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        return {"name": name, "skipped": f"{NEEDS[name]} is not installed"}
    found: dict[str, Any] = {"name": name}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone = started(words, folder)
        seen = started(words, folder, ["--out", str(folder / "run")])
        metered = [json.loads(path.read_text()) for path in sorted(folder.glob("meter.*"))]
        run = json.loads((folder / "run" / "run.json").read_text())
        probed = None
        if name not in (*RANKS, *NO_LOADER) and words[0] != "sh":
            probed = started(words, folder, ["--probe=3", "--out", str(folder / "probed")])
            told = json.loads((folder / "probed" / "run.json").read_text())
            found["experiments"] = bool(told.get("stages"))
            found["probed_same"] = (probed.returncode, probed.stdout) == (alone.returncode, alone.stdout)
    program = run["program"]
    training = [loop for loop in program["loops"] if loop["role"] == "training"]
    shares = [
        loop["wait_share"]["value"] for loop in sorted(training, key=lambda loop: loop.get("rank") or 0) if loop.get("wait_share")
    ]
    meter = [one["waited_s"] / one["took_s"] for one in metered]
    found |= {
        "same": (seen.returncode, seen.stdout) == (alone.returncode, alone.stdout),
        "exit_code": alone.returncode,
        "verdict": run["verdict"]["sentence"],
        "kind": run["verdict"]["kind"],
        "steps": sum(loop["steps"] for loop in training),
        "told": shares,
        "metered": meter,
        "overhead": program["overhead_share"],
        "errors": program.get("errors", []),
    }
    if alone.returncode or not found["same"]:
        found["stderr"] = (alone.stderr + seen.stderr)[-2000:]
    return found


def off(one: dict[str, Any]) -> float | None:
    """How far the told wait share is from the meter's, at worst over ranks."""
    if not one.get("metered") or len(one["told"]) != len(one["metered"]):
        return None
    return max(abs(told - true) for told, true in zip(one["told"], one["metered"], strict=True))


def costs(repeats: int) -> dict[str, Any]:
    """Seconds of a paced loop's blocks beside their spinning, and of starting Python, with and without, in turn."""
    found: dict[str, Any] = {"loops": {}, "starts": {}}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        paced = folder / "paced.py"
        paced.write_text(PACED)
        for name, seconds in STEPS.items():
            words = [str(paced), str(seconds), str(round(BLOCK_SECONDS / seconds)), str(PAIRS * repeats)]
            found["loops"][name] = json.loads(started(words, folder, ["--out", str(folder / "out"), "-q"]).stdout)
        with hooked(folder) as hook:
            for name, code in {"without torch": "pass", "with torch": "import torch, torch.utils.data"}.items():
                turns = {"alone": [], "pipefix": []}
                for _ in range(2 * repeats):
                    for arm, environment in (("alone", dict(os.environ)), ("pipefix", hook)):
                        begun = time.perf_counter()
                        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
                        turns[arm].append(time.perf_counter() - begun)
                found["starts"][name] = turns
    return found


def measure(options: argparse.Namespace, record: Record) -> bool:
    done: list[dict[str, Any]] = record.body.setdefault("programs", [])
    wanted = [name for name in PROGRAMS if not options.only or any(part in name for part in options.only)]
    for name in wanted:
        if name in [one["name"] for one in done]:
            continue
        if record.over():
            return False
        done.append(tried(name))
        record.save()
        print(line(done[-1]), flush=True)
    if "costs" not in record.body:
        record.body["costs"] = costs(options.repeats)
        record.save()
    return len(done) >= len(wanted)


def line(one: dict[str, Any]) -> str:
    if "skipped" in one:
        return f"{one['name']:22s} skipped: {one['skipped']}"
    apart = off(one)
    said = "no meter" if apart is None else f"told {worst(one['told'])}, metered {worst(one['metered'])}"
    return f"{one['name']:22s} {'same' if one['same'] else 'DIFFERENT'}, {one['steps']} steps, {one['kind']}, {said} {one.get('stderr', '')}"


def worst(shares: list[float]) -> str:
    return "/".join(f"{share:.1%}" for share in shares)


def more(turns: dict[str, list[float]]) -> float:
    """Share of its time that a loop takes more: trimmed mean of pairs of blocks."""
    pairs = zip(turns["pipefix"], turns["alone"], strict=True)
    shares = sorted((noted - alone) / (BLOCK_SECONDS + alone) for noted, alone in pairs)
    return statistics.mean(shares[int(TRIMMED * len(shares)) : len(shares) - int(TRIMMED * len(shares))])


def later(turns: dict[str, list[float]]) -> float:
    return statistics.median(turns["pipefix"]) - statistics.median(turns["alone"])


def bars(body: dict[str, Any]) -> list[Bar]:
    ran = [one for one in body["programs"] if "skipped" not in one]
    apart = [far for one in ran if (far := off(one)) is not None]
    probed = [one for one in ran if "probed_same" in one]
    paid = body["costs"]
    return [
        at_least("programs that were run", len(ran), len(PROGRAMS), "{:.0f}"),
        none_of("programs whose output or exit code was another", sum(not one["same"] for one in ran)),
        none_of("programs without a training loop seen", sum(not one["steps"] for one in ran)),
        none_of("programs without a verdict", sum(one["kind"] == "inconclusive" for one in ran)),
        at_most("told wait share against the meter's, worst", max(apart, default=None), 0.03, "{:.1%}"),
        none_of("programs that experiments in them changed", sum(not one["probed_same"] for one in probed)),
        none_of("programs in which no experiment was made", sum(not one["experiments"] for one in probed)),
        at_most("what noting costs on a step of 20 ms", more(paid["loops"]["20 ms"]), 0.005, "{:.2%}"),
        at_most("what noting costs on a step of 1 ms", more(paid["loops"]["1 ms"]), 0.02, "{:.2%}"),
        at_most("ms later that Python starts without torch", 1e3 * later(paid["starts"]["without torch"]), 30, "{:.1f}"),
        at_most("ms later that Python starts with torch", 1e3 * later(paid["starts"]["with torch"]), 150, "{:.1f}"),
    ]


def table(body: dict[str, Any]) -> str:
    cells = []
    for one in body["programs"]:
        if "skipped" in one:
            cells.append([one["name"], one["skipped"], "", "", "", ""])
            continue
        probed = "" if "probed_same" not in one else ("to the last bit" if one["probed_same"] else "DIFFERENT")
        same = "the same" if one["same"] else "DIFFERENT"
        cells.append([one["name"], same, f"{one['steps']}", one["kind"], f"{worst(one['told'])} / {worst(one['metered'])}", probed])
    head = ["program", "output and exit code", "steps seen", "verdict", "waits: told / metered", "with experiments"]
    return f"""
Programs of `benchmarks/programs`, alone and under `pipefix run`. Waits are shares of the training loop's time, rank by rank; the meter
is inside the program and knows nothing of pipefix. With experiments: `--probe=3`, output compared with that of the program alone.
Costs of noting: blocks of one process in turn, every second one with what notes taken out of torch; the mean of pairs without the fifth
that is highest and the fifth that is lowest. Costs of starting: medians of processes run in turn.

{rows(head, cells)}"""
