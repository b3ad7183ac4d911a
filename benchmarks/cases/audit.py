"""The audit against planted mistakes and sound configurations, and eviction against its proof."""

from __future__ import annotations

import argparse
import mmap
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, at_most, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.audit.facts import audit, every_rule
from pipefix.measurement.residency import COLD, ColdProof, cold
from tests.audit.case import Case, Impossible
from tests.audit.mistakes import MISTAKES, list_dataset
from tests.audit.sound import HEALTHY, array_dataset

TITLE = "The environment audit, and cold files"
ISSUE = "2, bars 4 and 7"
MINUTES = 2
QUICK: dict[str, Any] = {}
FILES = 2000
FILE_BYTES = 110_000
WORDS = {True: "ok  ", False: "MISS", None: "skip"}


def _row(case: Case) -> dict[str, Any]:
    row: dict[str, Any] = {"name": case.name, "real": case.real, "expected": case.expect, "found": [], "right": None}
    try:
        found = [finding.id for finding in audit(case.make())]
    except Impossible as reason:
        return {**row, "skipped": str(reason)}
    return {**row, "found": found, "right": found == ([case.expect] if case.expect else [])}


def _growth() -> dict[str, Any]:
    """Private memory that one worker gained by reading the same entries from a list and from arrays."""
    grown = {name: make().growth for name, make in (("list", list_dataset), ("arrays", array_dataset))}
    return {name: {"bytes": seen.bytes, "samples": seen.samples} for name, seen in grown.items() if seen is not None}


def _evictions() -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{index}.bin" for index in range(FILES)]
        for path in paths:
            path.write_bytes(os.urandom(FILE_BYTES))
        rows.append(_evicted(f"{FILES} files just written, not yet on disk", paths, expect=True))
        for path in paths:
            path.read_bytes()
        rows.append(_evicted(f"{FILES} files just read", paths, expect=True))
        with paths[0].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert len(bytes(mapped)) == FILE_BYTES
            rows.append(_evicted("a file that a process maps", paths[:1], expect=False))
    if os.path.isdir("/dev/shm"):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            path = Path(folder) / "file"
            path.write_bytes(bytes(FILE_BYTES))
            rows.append(_evicted("a file in /dev/shm", [path], expect=False))
    return rows


def _evicted(name: str, paths: list[Path], *, expect: bool) -> dict[str, Any]:
    begun = time.perf_counter()
    proof: ColdProof = cold({str(path): [] for path in paths})
    spent = time.perf_counter() - begun
    right = proof.cold is expect and (not expect or (proof.after is not None and proof.after <= COLD))
    return {
        "name": name,
        "before": proof.before,
        "after": proof.after,
        "cold": proof.cold,
        "why": proof.why.replace(str(paths[0]), "the file"),
        "microseconds_a_file": round(spent / len(paths) * 1e6, 1),
        "right": right,
    }


def measure(options: argparse.Namespace, record: Record) -> None:
    planted = [_row(case) for case in MISTAKES]
    sound = [_row(case) for case in HEALTHY]
    for row in [*planted, *sound]:
        print(f"{WORDS[row['right']]}  {row['name']}: {', '.join(row['found']) or '-'}")
    evicted = _evictions()
    for row in evicted:
        print(f"{WORDS[row['right']]}  {row['name']}: residency {row['before']:.3f} -> {row['after']:.3f}, cold: {row['cold']}")
    rules = [rule.id for rule in every_rule()]
    record.body |= {"rules": rules, "planted": planted, "sound": sound, "copy_on_write": _growth(), "cold": evicted}


def bars(body: dict[str, Any]) -> list[Bar]:
    planted = [row for row in body["planted"] if row["right"] is not None]
    called_cold = [row["after"] for row in body["cold"] if row["cold"]]
    return [
        none_of(f"of {len(planted)} planted mistakes, not found", sum(row["expected"] not in row["found"] for row in planted)),
        none_of("planted mistakes with an alarm beside the right one", sum(len(row["found"]) > 1 for row in planted)),
        at_least("sound configurations", len(body["sound"]), 20, "{:.0f}"),
        none_of("false alarms on them", sum(bool(row["found"]) for row in body["sound"])),
        at_most("residency of what is called cold", max(called_cold, default=None), 0.01, "{:.3f}"),
        none_of("evictions called other than they were", sum(row["right"] is False for row in body["cold"])),
    ]


def table(body: dict[str, Any]) -> str:
    planted = []
    for row in body["planted"]:
        fired = f"not run: {row['skipped']}" if "skipped" in row else ", ".join(row["found"]) or "nothing"
        planted.append([row["name"], "yes" if row["real"] else "", row["expected"], fired])
    sound = [[row["name"], "yes" if row["real"] else "", ", ".join(row["found"]) or "nothing"] for row in body["sound"]]
    cold = [
        [
            row["name"], f"{row['before']:.3f}", f"{row['after']:.3f}", "yes" if row["cold"] else "no",
            f"{row['microseconds_a_file']:g}", row["why"],
        ]
        for row in body["cold"]
    ]  # fmt: skip
    grown = {name: f"{seen['bytes'] / 2**20:.0f} MiB in {seen['samples']:,} reads" for name, seen in body["copy_on_write"].items()}
    private = (
        f"Private memory that one forked worker gained from 500,000 entries (USS): as a list of tuples {grown['list']}, "
        f"as arrays {grown['arrays']}."
        if len(grown) == 2
        else ""
    )
    return f"""
A mistake counts as found only by its own rule. Real cases were made on running processes; for the others, another machine's /proc and
/sys (or what would have been read there) was handed to the same code. The cases were written beside the rules: they show that each rule
works and keeps to its limits, not how often such mistakes occur elsewhere.

{rows(["planted mistake", "real", "rule that must fire", "fired"], planted)}

{rows(["sound configuration", "real", "fired"], sound)}

{private}

## Cold is cold

Residency by `mincore`; above {COLD:.0%} the word is refused.

{rows(["files", "before", "after", "called cold", "µs a file", "why not"], cold)}"""
