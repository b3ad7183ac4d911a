"""The audit against planted mistakes and sound configurations, and eviction against its proof; figures go to benchmarks/audit.*"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from pipefix.audit.rules import audit, every_rule
from pipefix.measurement.machine import look
from pipefix.measurement.residency import COLD, ColdProof, cold
from tests.audit.case import ROOT, Case, Impossible
from tests.audit.mistakes import MISTAKES, list_dataset
from tests.audit.sound import HEALTHY, array_dataset

FILES = 2000
FILE_BYTES = 110_000
WORDS = {True: "ok  ", False: "MISS", None: "skip"}


def main() -> int:
    planted = [_row(case) for case in MISTAKES]
    sound = [_row(case) for case in HEALTHY]
    for row in [*planted, *sound]:
        print(f"{WORDS[row['right']]}  {row['name']}: {', '.join(row['found']) or '-'}")
    evicted = _evictions()
    for row in evicted:
        print(f"{WORDS[row['right']]}  {row['name']}: residency {row['before']:.3f} -> {row['after']:.3f}, cold: {row['cold']}")
    report = {
        "machine": _machine(),
        "rules": [rule.id for rule in every_rule()],
        "planted": planted,
        "sound": sound,
        "copy_on_write": _growth(),
        "cold": evicted,
    }
    folder = ROOT / "benchmarks"
    folder.mkdir(exist_ok=True)
    (folder / "audit.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    (folder / "audit.md").write_text(_page(report))
    wrong = [row for row in [*planted, *sound, *evicted] if row["right"] is False]
    print(_score(report))
    return 1 if wrong else 0


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
    proof: ColdProof = cold(paths)
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


def _machine() -> dict[str, Any]:
    seen = look()
    kept = ("system", "cpu_model", "logical_cores", "effective_cores", "memory_bytes", "python")
    return {name: getattr(seen, name) for name in kept} | {"torch": seen.versions.get("torch")}


def _score(report: dict[str, Any]) -> str:
    planted = [row for row in report["planted"] if row["right"] is not None]
    found = sum(row["expected"] in row["found"] for row in planted)
    beside = sum(row["found"] != [row["expected"]] and row["expected"] in row["found"] for row in planted)
    alarms = sum(bool(row["found"]) for row in report["sound"])
    return (
        f"{found} of {len(planted)} planted mistakes found ({beside} with an alarm beside the right one); "
        f"{alarms} false alarms on {len(report['sound'])} sound configurations."
    )


def _page(report: dict[str, Any]) -> str:
    seen = report["machine"]
    where = (
        f"{seen['cpu_model']}, {seen['effective_cores']:g} cores, {seen['system']}, Python {seen['python']}, torch {seen['torch']}"
    )
    lines = [
        "# The environment audit, and cold files",
        "",
        f"Written by `scripts/bench_audit` on {where}.",
        "",
        f"**{_score(report)}**",
        "",
    ]
    lines += ["A mistake counts as found only by its own rule. Real cases were made on running processes; for the others, another"]
    lines += [
        "machine's /proc and /sys (or what would have been read there) was handed to the same code. The cases were written beside"
    ]
    lines += ["the rules: they show that each rule works and keeps to its limits, not how often such mistakes occur elsewhere.", ""]
    lines += ["| planted mistake | real | rule that must fire | fired |", "|---|---|---|---|"]
    for row in report["planted"]:
        fired = f"not run: {row['skipped']}" if "skipped" in row else ", ".join(row["found"]) or "nothing"
        lines.append(f"| {row['name']} | {'yes' if row['real'] else ''} | {row['expected']} | {fired} |")
    lines += ["", "| sound configuration | real | fired |", "|---|---|---|"]
    lines += [
        f"| {row['name']} | {'yes' if row['real'] else ''} | {', '.join(row['found']) or 'nothing'} |" for row in report["sound"]
    ]
    if len(report["copy_on_write"]) == 2:
        grown = {
            name: f"{seen['bytes'] / 2**20:.0f} MiB in {seen['samples']:,} reads" for name, seen in report["copy_on_write"].items()
        }
        lines += ["", "Private memory that one forked worker gained from 500,000 entries (USS): "]
        lines += [f"as a list of tuples {grown['list']}, as arrays {grown['arrays']}."]
    lines += ["", "## Cold is cold", "", f"Residency by `mincore`; above {COLD:.0%} the word is refused.", ""]
    lines += ["| files | before | after | called cold | µs a file | why not |", "|---|---|---|---|---|---|"]
    for row in report["cold"]:
        figures = f"{row['before']:.3f} | {row['after']:.3f} | {'yes' if row['cold'] else 'no'} | {row['microseconds_a_file']:g}"
        lines.append(f"| {row['name']} | {figures} | {row['why']} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
