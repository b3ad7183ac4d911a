"""Measures this machine and the product on it, and prints each figure beside what is wanted of it.

    scripts/measure             everything; minutes
    scripts/measure --list      what there is
    scripts/measure NAME ...    some of it

A verdict is `ok`, `off` (not what is wanted) or `busy` (other programs used more than a tenth of all cores meanwhile, so the
figure says little). Exits with 0 unless something raises; with --strict, with 1 where a figure is off. Each module has a process of
its own.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib.util
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measured.planted.quiet import BUSY
from measured.row import Row

ROOT = Path(__file__).resolve().parent.parent
GRACE_S = 30
"""In which an interrupted module may take down what it has built."""


def main(words: Sequence[str] | None = None, package: str = "measured") -> int:
    modules = found(package)
    parser = argparse.ArgumentParser(
        prog="scripts/measure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure (default: everything)")
    parser.add_argument("--list", action="store_true", help="name what there is, and measure nothing")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a figure is off")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there, with the machine")
    given = parser.parse_args(words)
    unknown = [name for name in given.names if name not in modules]
    if unknown:
        parser.error(f"nothing of this name: {', '.join(unknown)} (there is {', '.join(modules)})")
    if given.json is not None and not given.json.resolve().parent.is_dir():
        parser.error(f"no such folder: {given.json.resolve().parent}")
    if given.list:
        for name, about in modules.items():
            print(f"{name:14} {about}")
        return 0
    table = Table()
    table.begin()
    code = 0
    try:
        for name in given.names or modules:
            measure(f"{package}.{name}", name, table)
    except KeyboardInterrupt:
        print("Interrupted: what is printed stands.", file=sys.stderr)
        code = 130
    if given.json is not None:
        given.json.write_text(json.dumps(table.kept(), indent=1) + "\n", encoding="utf-8")
    if code == 0 and (table.raised or (given.strict and table.off)):
        code = 1
    return code


def found(package: str) -> dict[str, str]:
    """The modules of a package that define `rows`, each with the first line of what it says of itself. None of them is imported."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    modules = {}
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).glob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(node, ast.FunctionDef) and node.name == "rows" for node in tree.body):
                modules[path.stem] = (ast.get_docstring(tree) or "").split("\n")[0]
    return modules


def measure(module: str, name: str, table: Table) -> None:
    """Run one module in a process of its own, in a group of its own: what it leaves behind when it ends goes with it."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as log, open(reader, "rb", buffering=0) as answers:
        process = subprocess.Popen(
            [sys.executable, "-m", "measured.child", module, str(writer)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[writer], start_new_session=True,
        )  # fmt: skip
        os.close(writer)
        ended, count = False, 0
        try:
            for told in lines(answers.fileno(), process):
                if "row" in told:
                    count += 1
                    table.add(name, Row(**told["row"]), told["others"])
                elif "raised" in told:
                    ended = True
                    table.broke(name, told["raised"].strip().splitlines()[-1], told["raised"])
                else:
                    ended = True
                    if not count:
                        table.say(f"{name}: nothing of this can be measured here")
            code = process.wait()
            if not ended:
                log.seek(0)
                written = log.read().decode(errors="replace")
                said = written.strip().splitlines()[-1:]
                how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
                table.broke(name, ": ".join([how, *said]), written)
        except BaseException:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                pass
            raise
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def lines(descriptor: int, process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """What the process tells, until it has ended: a child that outlives it may hold the other end of the pipe."""
    pending = b""
    while True:
        gone = process.poll() is not None
        if not select.select([descriptor], [], [], 0 if gone else 0.2)[0]:
            if gone:
                return
            continue
        read = os.read(descriptor, 1 << 16)
        if not read:
            return
        *whole, pending = (pending + read).split(b"\n")
        for line in whole:
            yield json.loads(line)


@dataclass
class Table:
    """Prints rows as they come, and keeps them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    raised: dict[str, str] = field(default_factory=dict)
    off: int = 0
    machine: dict[str, Any] = field(default_factory=dict)

    def begin(self) -> None:
        self.machine = machine()
        self.say(f"machine  {machine_line(self.machine)}")
        self.say(_columns("name", "figure", "unit", "wanted", "verdict"))

    def add(self, module: str, row: Row, others: float) -> None:
        verdict = judged(row, others)
        self.off += verdict == "off"
        self.rows.append({
            "module": module, "name": row.name, "figure": row.figure, "unit": row.unit, "wanted": row.wanted, "low": row.low,
            "high": row.high, "verdict": verdict, "others": round(others, 3), "source": row.source, "note": row.note,
        })  # fmt: skip
        told = verdict
        if verdict == "busy":
            told += f" ({'' if row.inside else 'off; '}{others:.0%} of all cores by others)"
        self.say(_columns(row.name, _short(row.figure), row.unit, _wanted(row), told))
        if row.note and not (row.judged and row.inside):
            self.say(f"    {row.note}")

    def broke(self, module: str, line: str, whole: str) -> None:
        self.raised[module] = whole
        self.say(f"{module}: raised: {line}")

    def say(self, line: str) -> None:
        print(line.rstrip(), flush=True)

    def kept(self) -> dict[str, Any]:
        today = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        return {"date": today, "machine": self.machine, "rows": self.rows, "raised": self.raised}


def judged(row: Row, others: float) -> str:
    """`others`: the share of all cores' time that other programs used meanwhile."""
    if not row.judged:
        return "-"
    if others > BUSY and not row.steady:
        return "busy"
    return "ok" if row.inside else "off"


def _columns(name: str, figure: str, unit: str, wanted: str, verdict: str) -> str:
    return f"{name:<52} {figure:>8}  {unit:<10} {wanted:<16} {verdict}"


def _short(figure: float) -> str:
    whole = math.isfinite(figure) and (abs(figure) >= 100 or figure == int(figure))
    return f"{figure:.0f}" if whole else f"{figure:.3g}"


def _wanted(row: Row) -> str:
    """As the row says it, with no more digits than its figure has."""
    low, high = (None if bound is None else float(f"{bound:.4g}") for bound in (row.low, row.high))
    return Row("", 0.0, "", low, high).wanted


def machine() -> dict[str, Any]:
    """What the benchmarks say of it, and how it is just now."""
    from benchmarks.harness.machine import describe
    from pipefix.system.cgroups import limits

    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return describe() | {
        "quota_cores": limits(Path("/")).quota_cores,
        "load": round(os.getloadavg()[0], 2),
        "commit": commit or None,
    }


def machine_line(machine: dict[str, Any]) -> str:
    from benchmarks.harness.machine import line

    quota, commit = machine["quota_cores"], machine["commit"]
    allowed = [f"quota {quota:g} cores"] if quota else ["no quota"]
    return ", ".join([line(machine), *allowed, f"load {machine['load']:g}", *([f"commit {commit}"] if commit else [])])


if __name__ == "__main__":
    sys.exit(main())
