"""Do the parts add up? Attributed and unattributed time against the delivered time, and that against an untouched loader.

The fixture pipeline and planted ones are probed. Beside each probe the same pipeline runs as a plain loop over a plain
DataLoader, so that the probe's delivered seconds a sample can be held against a measurement made outside of it.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import statistics
from typing import Any

from benchmarks.harness.bar import Bar, at_most, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.planted import options as planted_options
from benchmarks.harness.record import ROOT, Record
from measured.planted import fixes, quiet, tuning
from measured.planted.children import in_child
from measured.planted.judge import preload, target_of
from measured.planted.server import Server
from measured.planted.sources import block_files

TITLE = "Closure"
ISSUE = "2, bar 3"
MINUTES = 6
QUICK = {"budget": 4.0, "seconds": 0.5, "patience": 0.0}
PHOTOS = ROOT / "fixtures" / "datasets" / "photos.py"
PLANTED = (
    fixes.plant("nothing planted apart", decode=2, augment=1.5, storage=1, collate=0.8),
    fixes.plant("with a step", decode=2, augment=1.5, step=3),
    fixes.plant("with a real step", decode=2, augment=1.5, step=3, consumer="real"),
    fixes.plant("one worker", workers=1, decode=2, augment=1.5),
    fixes.plant("two workers that wait", workers=2, storage=4, source="socket"),
    fixes.plant("two workers under a slow step", workers=2, decode=1.5, step=4),
    fixes.plant("a stream", shape="stream", format="json", decode=2, collate=1),
    fixes.plant("batched fetching", shape="batched", format="npz", decode=2),
    fixes.plant("everything inline", shape="inline", format="zlib", decode=2, augment=1.5),
)


def probed(target: str, **options: Any) -> dict[str, Any]:
    """A probe's parts, and what its clocks added up to before they were held against the time that no clock ran in."""
    from pipefix.api import probe as verb

    known = []
    own = verb.diagnose
    verb.diagnose = lambda found: known.append(own(found)) or known[-1]  # type: ignore[func-returns-value]
    try:
        run = verb.probe(target, **options)
    finally:
        verb.diagnose = own
    return sums(run) | {"clocks": known[-1].closure}


def sums(run: Any) -> dict[str, Any]:
    """The report's own parts: shares of the delivered time, and the part that belongs to no stage."""
    delivered = run.sample_s.value
    attributed = sum((figure.share or 0.0) * delivered for figure in run.stages)
    own = next((caveat.sentence for caveat in run.caveats if caveat.id == "closure"), "")
    return {
        "sample_s": delivered,
        "attributed_s": attributed,
        "unattributed_s": run.unattributed_s,
        "closes": (attributed + run.unattributed_s) / delivered - 1,
        "unattributed": run.unattributed_s / delivered,
        "caveat": own,
        "verdict": run.verdict.sentence,
    }


def fixture(budget: float, seconds: float) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("photos_beside", PHOTOS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    size = module.train_loader.batch_size
    outside = [tuning.pace(module.train_loader, seconds, module.train_step)[0] / size]
    found = probed(f"{PHOTOS}:train_loader", budget=budget)
    outside.append(tuning.pace(module.train_loader, seconds, module.train_step)[0] / size)
    return found | {"outside_s": outside}


def planted(case: Any, budget: float, seconds: float) -> dict[str, Any]:
    with tuning.build(case) as pipeline:
        target, options = target_of(pipeline)
        step = fixes.consumer_of(pipeline)
        outside = [tuning.pace(pipeline.loader, seconds, step)[0] / case.batch_size]
        found = probed(target, budget=budget, **options)
        outside.append(tuning.pace(pipeline.loader, seconds, step)[0] / case.batch_size)
    return found | {"outside_s": outside}


def against_outside(result: dict[str, Any]) -> float:
    return float(result["sample_s"] / statistics.fmean(result["outside_s"]) - 1)


def line(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{result['name']:32s} failed: {result['error']}\n{result.get('log', '')}"
    outside = [round(seconds * 1e3, 3) for seconds in result["outside_s"]]
    return (
        f"{result['name']:32s} {result['sample_s'] * 1e3:7.3f} ms a sample, sum {result['closes']:+.2%}, unattributed "
        f"{result['unattributed']:.1%}, by the clocks alone {result['clocks']:+.1%}, "
        f"untouched loader {outside} ms ({against_outside(result):+.1%}) {result['caveat']}"
    )


def options(parser: argparse.ArgumentParser) -> None:
    planted_options(parser, budget=15.0, only="pipelines whose name contains")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of the outside measurement before and after (default 3)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    preload()
    block_files()
    works = {"fixture photos.py": functools.partial(fixture, options.budget, options.seconds)}
    works |= {case.name: functools.partial(planted, case, options.budget, options.seconds) for case in PLANTED}
    if options.quick:
        works = {name: works[name] for name in list(works)[1:2]}
    done: list[dict[str, Any]] = record.body.setdefault("pipelines", [])
    with Server():
        for name, work in works.items():
            if name in [one["name"] for one in done] or (options.only and not any(part in name for part in options.only)):
                continue
            if record.over():
                break
            quiet.wait(options.patience)
            done.append({"name": name, **in_child(work, timeout=120 + 3 * options.budget)})
            record.save()
            print(line(done[-1]), flush=True)
    return len(done) == len(works)


def bars(body: dict[str, Any]) -> list[Bar]:
    sound = [one for one in body["pipelines"] if "error" not in one]
    fixtures = [one["unattributed"] for one in sound if one["name"].startswith("fixture")]
    return [
        none_of("pipelines whose probe failed", len(body["pipelines"]) - len(sound)),
        at_most(
            "parts against the delivered time, worst", max((abs(one["closes"]) for one in sound), default=None), 0.02, "{:.2%}"
        ),
        at_most("unattributed, on the fixture pipeline", max(fixtures, default=None), 0.05, "{:.1%}"),
    ]


def table(body: dict[str, Any]) -> str:
    sound = [one for one in body["pipelines"] if "error" not in one]
    near = sum(abs(one["clocks"]) <= 0.02 for one in sound)
    cells = [
        [
            one["name"], f"{one['sample_s'] * 1e3:.3f} ms", f"{one['closes']:+.2%}", f"{one['unattributed']:.1%}", f"{one['clocks']:+.1%}",
            f"{statistics.fmean(one['outside_s']) * 1e3:.3f} ms", f"{against_outside(one):+.1%}",
        ]
        for one in sound
    ]  # fmt: skip
    head = [
        "pipeline",
        "delivered",
        "parts against it",
        "unattributed",
        "by the clocks alone",
        "untouched loader",
        "probe against it",
    ]
    return f"""
Delivered seconds a sample as the probe measured them; how far attributed and unattributed parts together, as reported, are from it;
the part that belongs to no stage; how far what the clocks added up to was from it before shares were taken (timed and untimed
rounds are other seconds of a shared machine; within 2 % in {near} of {len(sound)}); and the same pipeline as a plain loop over a plain
DataLoader, measured before and after the probe. That loop starts its workers anew with every epoch, which a probe tells apart from the
steady state: the fixture's epochs are 96 pictures long.

{rows(head, cells)}"""
