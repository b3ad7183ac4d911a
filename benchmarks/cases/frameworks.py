"""Frameworks as they are: each way to train with them seen with its stages, probed in the middle, and given a FastLoader by a plan.

Each case of ``benchmarks/programs/frameworks.py`` prints a checksum of every batch that a step works on. It runs alone, under ``pipefix
run --probe`` and under ``pipefix run --plan``, and is to print the same.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cases.programs import TORCHRUN, started
from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record

TITLE = "Frameworks as they are"
ISSUE = "16, bar 6"
MINUTES = 30
QUICK = {"only": ["hf_map"]}
CASES = {
    "lightning": "lightning",
    "lightning_ddp": "lightning",
    "lightning_overfit": "lightning",
    "lightning_resume": "lightning",
    "lightning_callback": "lightning",
    "lightning_module": "lightning",
    "accelerate": "accelerate",
    "accelerate_two": "accelerate",
    "accelerate_split": "accelerate",
    "accelerate_dispatch": "accelerate",
    "accelerate_uneven": "accelerate",
    "hf_map": "transformers",
    "hf_arrow": "datasets",
    "hf_memory": "datasets",
    "hf_stream": "datasets",
    "hf_batch_sampler": "transformers",
    "timm": "timm",
    "timm_plain": "timm",
    "webloader": "webdataset",
    "stateful": "torchdata",
    "nodes": "torchdata",
    "ultralytics": "ultralytics",
}
"""By name: the package that it needs."""
ON_TWO = ("accelerate_two", "accelerate_split", "accelerate_dispatch", "accelerate_uneven")
"""That torchrun starts; Lightning starts its own ranks."""
OWN_LOADERS = ("webloader", "stateful", "nodes", "ultralytics", "lightning_callback")
"""Whose loader is a class of their own, or watched already: a plan leaves it as it is, and that is told."""
DISPATCHED = 240
"""Batches that the first of two ranks asks its loader for, beside its own, and sends to the other."""
PLAN = """\
format = "pipefix.plan/1"
target = {target}

[loader]
num_workers = 1
engine = "processes"
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", default=[], help="cases whose name contains one of these")


def tried(name: str) -> dict[str, Any]:
    if importlib.util.find_spec(CASES[name]) is None:
        return {"name": name, "skipped": f"{CASES[name]} is not installed"}
    words = [*(TORCHRUN if name in ON_TWO else ()), "frameworks.py", name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone = started(words, folder)
        probed = started(words, folder, ["--probe=4", "--out", str(folder / "probed")], PIPEFIX_RUN_LOOK_AFTER="0.1")
        run = json.loads((folder / "probed" / "run.json").read_text())
        training = [loop for loop in run["program"]["loops"] if loop["role"] == "training"]
        found = {
            "name": name,
            "exit_code": alone.returncode,
            "same": printed(probed) == printed(alone),
            "batches": len(alone.stdout.splitlines()) + (DISPATCHED if name == "accelerate_dispatch" else 0),
            "steps": sum(loop["steps"] for loop in training),
            "ranks": run["program"]["ranks"],
            "loaders": sorted({loop["loader"] for loop in training}),
            "looked": sum(loop.get("looked", 0) for loop in training),
            "stages": sorted({stage for loop in training for stage in loop.get("stages", {})}),
            "experiments": bool(run.get("stages")),
            "verdict": run["verdict"]["sentence"],
            "told": [one["id"] for one in run["program"].get("findings", [])],
            "errors": run["program"].get("errors", []),
        }
        made = [loader for loader in found["loaders"] if loader]  # a rank that is sent its batches has none
        if made:
            plan = folder / "plan.toml"
            plan.write_text(PLAN.format(target=json.dumps(made[0])))
            planned = started(words, folder, ["--plan", str(plan), "--out", str(folder / "planned")])
            told = json.loads((folder / "planned" / "run.json").read_text())["program"]
            found |= {"planned": told.get("planned", []), "planned_same": printed(planned) == printed(alone)}
            found["errors"] += told.get("errors", [])
            if not found["planned_same"]:
                found["planned_stderr"] = planned.stderr[-3000:].replace(place, "FOLDER")
        if alone.returncode or not found["same"]:
            found["stderr"] = (alone.stderr + probed.stderr)[-3000:].replace(place, "FOLDER")
    return found


def printed(ran: Any) -> tuple[int, list[str]]:
    """Its ranks print in no order of theirs together."""
    return ran.returncode, sorted(ran.stdout.splitlines(), key=lambda line: line.split()[:1])


def measure(options: argparse.Namespace, record: Record) -> bool:
    done: list[dict[str, Any]] = record.body.setdefault("cases", [])
    wanted = [name for name in CASES if not options.only or any(part in name for part in options.only)]
    for name in wanted:
        if name in [one["name"] for one in done]:
            continue
        if record.over():
            return False
        done.append(tried(name))
        record.save()
        print(json.dumps(done[-1], indent=1), flush=True)
    return len(done) >= len(wanted)


def bars(body: dict[str, Any]) -> list[Bar]:
    ran = [one for one in body["cases"] if "skipped" not in one]
    replaceable = [one for one in ran if one["name"] not in OWN_LOADERS]
    return [
        at_least("ways to train that were run", len(ran), len(CASES), "{:.0f}"),
        none_of("that ended with an error by themselves", sum(bool(one["exit_code"]) for one in ran)),
        none_of("other batches with experiments in the middle", sum(not one["same"] for one in ran)),
        none_of("steps that were not seen", sum(abs(one["batches"] - one["steps"]) for one in ran)),
        none_of("seen without the stages of their batches", sum(not one["looked"] for one in ran)),
        none_of("in which no experiment was made", sum(not one["experiments"] for one in ran)),
        none_of("other batches with a plan in place", sum(not one.get("planned_same") for one in ran)),
        none_of("in which the plan was not put in place", sum(not one.get("planned") for one in replaceable)),
        none_of("in which something kept pipefix from looking", sum(bool(one["errors"]) for one in ran)),
    ]


def table(body: dict[str, Any]) -> str:
    cells = []
    for one in body["cases"]:
        if "skipped" in one:
            cells.append([one["name"], one["skipped"], "", "", "", "", ""])
            continue
        same = "the same" if one["same"] else "DIFFERENT"
        planned = "" if "planned_same" not in one else ("the same" if one["planned_same"] else "DIFFERENT")
        planned += "" if one.get("planned") else ", left as it is"
        seen = f"{one['steps']} of {one['batches']}"
        cells.append(
            [one["name"], same, seen, f"{one['looked']}", "made" if one["experiments"] else "none", planned, "; ".join(one["told"])]
        )
    head = ["way to train", "batches with `--probe=4`", "steps seen", "looked at", "experiments", "batches with `--plan`", "told"]
    return f"""
Cases of `benchmarks/programs/frameworks.py`: two epochs of 120 batches of 8 samples with one worker, a step of 30 ms. The batches that
steps work on, by their checksums, with experiments in the middle and with a plan (`engine = "processes"`) in place, against those of the
program alone. Loaders of classes of their own are left as they are by a plan.

{rows(head, cells)}"""
