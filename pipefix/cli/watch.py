"""Follow a running job's loader: its state, the cost of each stage, and what drifts.

SOURCE is the file or the address that the job names in pipefix.watch(loader, jsonl="watch.jsonl", prometheus=9400): a file of JSON
lines, http://127.0.0.1:9400/metrics, or the port alone, pipefix watch 9400. With --baseline the job is held against a run file of
`pipefix probe`, or against the lines of an earlier job; without, against its own beginning. Ends with the job, also where it was
killed and nothing more comes.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipefix.cli import arguments, console
from pipefix.vocabulary.errors import GateFailed, Interrupted

if TYPE_CHECKING:
    from pipefix.watching.follow import Window


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix watch SOURCE [options]"
    parser.add_argument("source", metavar="SOURCE", help="what the job writes (a file) or serves (an address)")
    parser.add_argument(
        "--baseline", type=Path, metavar="RUN", help="a run file, or the lines of an earlier job, to hold it against"
    )
    parser.add_argument("--fail-on-drift", action="store_true", help="exit with 1 as soon as something drifts")
    parser.add_argument("--once", action="store_true", help="print what is known by now, and leave")
    parser.add_argument("--every", type=arguments.seconds, default=2.0, metavar="TIME", help="look so often (default: 2s)")
    parser.add_argument("--json", action="store_true", help="print each window as a line of JSON")


def run(arguments: Namespace) -> int:
    from pipefix.watching import follow

    drifted: list[str] = []
    was_told = False
    try:
        groups = follow.follow(arguments.source, baseline=arguments.baseline, once=arguments.once, every=arguments.every)
        for group in groups:
            drifted += [notice.sentence for window in group for notice in window.notices if notice.alarm]
            if arguments.json:
                for window in group:
                    console.as_json(window, indent=False)
            else:
                console.results(_lines(group, whole=not was_told))
            was_told = True
            if drifted and arguments.fail_on_drift:
                break
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted: {_summary(drifted)}", advice="The job goes on; follow it again at any time.") from None
    console.note(_summary(drifted))
    if drifted and arguments.fail_on_drift:
        raise GateFailed(f"pipefix watch --fail-on-drift: {drifted[0]}")
    return 0


def _lines(group: list[Window], *, whole: bool) -> Iterator[str]:
    """What was known at the start is told once, in full; what comes after it, in a line a window."""
    from pipefix.watching import follow

    for window in group:
        yield from (f"{'DRIFT' if notice.alarm else 'note '}  {notice.sentence}" for notice in window.notices)
        if not whole:
            yield follow.sentences.line(window)
    if whole:
        yield from follow.sentences.state(group[-1])


def _summary(drifted: list[str]) -> str:
    if not drifted:
        return "nothing has drifted."
    return f"{len(drifted)} alarm{'s' if len(drifted) > 1 else ''}; the first: {drifted[0]}"
