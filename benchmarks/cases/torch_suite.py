"""torch's own tests of its DataLoader, with `FastLoader` in its place and as they are: each test is to end alike.

The tests come from a copy of PyTorch's source (its folder ``test``), which no package has; ``expecttest`` must be installed. Some of
them fail wherever they are run (they want root, a debugger, or to be the main program), so both loaders are tried.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, Record

TITLE = "torch's own DataLoader tests"
ISSUE = "29, bar 3"
MINUTES = 12
QUICK = {"only": "test_sequential_batch"}
FILE = "test_dataloader.py"
KINDS = {"DataLoader": [], "FastLoader": ["-p", "benchmarks.programs.in_place"]}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", metavar="FOLDER", default="", help="the folder test of a copy of PyTorch's source")
    parser.add_argument("--only", metavar="TEXT", help="tests whose name has this in it")


def measure(options: argparse.Namespace, record: Record) -> None:
    if not (Path(options.suite) / FILE).is_file():
        raise SystemExit(
            f"There is no {FILE} in --suite {options.suite or '(not given)'}: name the folder test of PyTorch's source."
        )
    for kind, words in KINDS.items():
        record.body[kind] = outcomes(Path(options.suite).resolve(), [*words, *(["-k", options.only] if options.only else [])])
        record.save()
    record.body["torch"] = torch.__version__


def outcomes(folder: Path, words: list[str]) -> dict[str, str]:
    """How each test ended."""
    with tempfile.TemporaryDirectory() as made:
        results = Path(made) / "results.xml"
        order = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}", *words, FILE]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        ended = subprocess.run(
            order, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
        )
        if not results.exists():
            raise SystemExit(f"The tests could not be run:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        return read(results.read_text(encoding="utf-8"))


def read(results: str) -> dict[str, str]:
    """The outcome of each test, of what pytest wrote of a run."""
    cases = ElementTree.fromstring(results).iter("testcase")
    return {f"{case.get('classname')}.{case.get('name')}": _ended(case) for case in cases}


def _ended(case: ElementTree.Element) -> str:
    return next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")


def unlike(body: dict[str, Any]) -> list[list[str]]:
    """Tests that end otherwise with FastLoader, and how."""
    theirs, ours = body["DataLoader"], body["FastLoader"]
    names = sorted({*theirs, *ours})
    ended = [[name, theirs.get(name, "not run"), ours.get(name, "not run")] for name in names]
    return [row for row in ended if row[1] != row[2]]


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_least(
            "torch's tests that pass with FastLoader", sum(end == "passed" for end in body["FastLoader"].values()), 150, "{:.0f}"
        ),
        none_of("torch's tests that end otherwise than with DataLoader", len(unlike(body))),
    ]


def table(body: dict[str, Any]) -> str:
    ends = ("passed", "failure", "error", "skipped")
    counts = [[kind, *(sum(end == wanted for end in body[kind].values()) for wanted in ends)] for kind in KINDS]
    failing = [[name, end] for name, end in sorted(body["FastLoader"].items()) if end in ("failure", "error")]
    return f"""
`{FILE}` of PyTorch's source under torch {body["torch"]}, run by pytest in one process.

{rows(["", "passed", "failed", "error", "skipped"], counts)}

## Tests that end otherwise

{rows(["test", "DataLoader", "FastLoader"], unlike(body) or [["none", "", ""]])}

## Tests that fail with either

{rows(["test", ""], failing or [["none", ""]])}"""
