"""Runs benchmarks by name, in one go or in portions, and writes their figures and pages to benchmarks/results/.

    scripts/bench --list                    what there is, and how long it takes
    scripts/bench NAME [options of NAME]    one of them; with --help after the name, its own options
    scripts/bench NAME NAME ...             several, one after the other, each with its defaults
    scripts/bench all                       all of them

Results are written when a run is whole. Exits with 0 where every bar is met, with 1 where one is missed, and with 3 where a portion
ended before the run was whole: the same command goes on from there.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from benchmarks.harness import machine
from benchmarks.harness.case import Case, load, names
from benchmarks.harness.page import page
from benchmarks.harness.record import RESULTS, Record, record_path, result, write_json

PLACES = ("--portion", "--out", "--keep")
"""Options whose values say nothing to a reader of the page."""
OWN = ("names", "list", "again", "portion", "quick", "pages", "out")


def main(given: list[str] | None = None) -> int:
    warnings.simplefilter("ignore")
    words = sys.argv[1:] if given is None else given
    chosen = [word for word in words if word in names()]
    alone = load(chosen[0]) if len(chosen) == 1 and "all" not in words else None
    parser = parser_of(alone)
    options = parser.parse_args(words)
    if options.list:
        listing()
        return 0
    unknown = [name for name in options.names if name not in [*names(), "all"]]
    if unknown or not (options.names or options.pages):
        parser.error(f"no benchmark of this name: {' '.join(unknown)}" if unknown else "name a benchmark, or give --list")
    wanted = names() if "all" in options.names or not options.names else options.names
    if options.pages:
        return write_pages(wanted, options.out)
    codes = [run(load(name), options if alone else defaults(name, options), words if alone else [name]) for name in wanted]
    return max(codes)


def parser_of(case: Case | None) -> argparse.ArgumentParser:
    """The harness's own options, and those of the case that is run alone."""
    about = case.module.__doc__ if case else __doc__
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks, or all")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument("--again", action="store_true", help="forget what earlier portions measured")
    parser.add_argument("--portion", type=float, default=0.0, metavar="SECONDS", help="begin nothing more after so long")
    parser.add_argument("--quick", action="store_true", help="only show that it works: no bar counts, nothing is kept")
    parser.add_argument("--pages", action="store_true", help="measure nothing; write the pages of results that are there")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where NAME.json and NAME.md go")
    if case is not None and case.options is not None:
        case.options(parser.add_argument_group(f"options of {case.name}"))
    return parser


def defaults(name: str, options: argparse.Namespace) -> argparse.Namespace:
    """The options of one of several."""
    mine = parser_of(load(name)).parse_args([name])
    for word in OWN:
        setattr(mine, word, getattr(options, word))
    return mine


def run(case: Case, options: argparse.Namespace, words: list[str]) -> int:
    if options.quick:
        for name, value in case.quick.items():
            setattr(options, name, value)
    own = {name: value for name, value in vars(options).items() if name not in (*OWN, "keep")}
    with tempfile.TemporaryDirectory(prefix="pipefix-bench-") as scratch:
        out = Path(scratch) if options.quick else options.out
        path = Path(scratch) / "record.json" if options.quick else record_path(case.name, own, case.code)
        record = Record(path, portion_s=options.portion, published=None if options.quick else result(case.name, out))
        if options.again:
            record.forget()
        print(f"{case.name}: {case.about}", file=sys.stderr, flush=True)
        whole = case.measure(options, record)
        if not whole:
            record.save()
            print(f"{case.name}: not whole yet; run the same command again to go on", file=sys.stderr)
            return 3
        code = publish(case, record, out, words)
        return 0 if options.quick else code


def publish(case: Case, record: Record, out: Path, words: list[str]) -> int:
    """Write the figures and the page of a whole run, and say which bars it met."""
    body: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "machine": machine.describe(),
        "command": shlex.join(["scripts/bench", *_telling(words)]),
        "took_s": round(record.spent_s, 1),
        **record.body,
    }
    write_json(out / f"{case.name}.json", body)
    (out / f"{case.name}.md").write_text(page(case, body), encoding="utf-8")
    record.path.unlink(missing_ok=True)
    print(page(case, body))
    return 1 if any(bar.met is False for bar in case.bars(body)) else 0


def _telling(words: list[str]) -> list[str]:
    """The command without what is of one run, or one machine, alone."""
    kept: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        name = word.partition("=")[0]
        if name not in ("--again", "--quick", *PLACES) and before not in PLACES:
            kept.append(word)
    return kept


def write_pages(wanted: list[str], out: Path) -> int:
    for name in wanted:
        body = result(name, out)
        if body is not None:
            (out / f"{name}.md").write_text(page(load(name), body), encoding="utf-8")
    return 0


def listing() -> None:
    for name in names():
        case = load(name)
        print(f"{name:16} {case.minutes:4.0f} min  {case.about}")
