"""Follow a running job's loader: its state, the cost of each stage, and what drifts.

SOURCE is the file or the address that the job names in pipefix.watch(loader, jsonl="watch.jsonl", prometheus=9400): a file of JSON
lines, http://127.0.0.1:9400/metrics, or the port alone, pipefix watch 9400. With --baseline the job is held against a run file of
`pipefix probe`, or against the lines of an earlier job; without, against its own beginning. A job that has not begun is waited for,
five minutes at most. Ends with the job, also where it was killed (a file tells that by five minutes of silence).
"""

from __future__ import annotations

import time
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
    last: Window | None = None
    try:
        groups = follow.follow(
            arguments.source, baseline=arguments.baseline, once=arguments.once, every=arguments.every, say=console.note
        )
        for group in groups:
            jobs = follow.by_job(group, last)
            if len(jobs) > 1:
                drifted.clear()  # an earlier job's, which wrote to the same file
            drifted += [notice.sentence for window in jobs[-1] for notice in window.notices if notice.alarm]
            if not drifted and group[-1].drifting:  # the alarm came with a window that an endpoint, or a file, has no more
                drifted.append(f"Drifting since before the first window here: {', '.join(group[-1].drifting)}.")
            if arguments.json:
                is_read = all(console.as_json(window, indent=False) for window in group)
            else:
                is_read = console.results(_lines(jobs, whole=last is None))
            last = group[-1]
            if (drifted and arguments.fail_on_drift) or not (is_read or arguments.fail_on_drift):
                break
    except KeyboardInterrupt:
        known = "no window had come." if last is None else _summary(drifted)
        raise Interrupted(f"Interrupted: {known}", advice="The job is not touched; follow it again at any time.") from None
    old = follow.sentences.age(last, time.time()) if last is not None and arguments.once else None
    if old is not None:
        console.note(old)
    console.note(_summary(drifted))
    if drifted and arguments.fail_on_drift:
        raise GateFailed(f"pipefix watch --fail-on-drift: {drifted[0]}")
    return 0


def _lines(jobs: list[list[Window]], *, whole: bool) -> Iterator[str]:
    """What was known at the start is told once, in full, of the last job alone; what comes after it, in a line a window."""
    from pipefix.watching import follow

    for job, windows in enumerate(jobs[-1:] if whole else jobs):
        if job:
            yield "note   Another job writes here from now on."
        for window in windows:
            yield from (f"{'DRIFT' if notice.alarm else 'note '}  {notice.sentence}" for notice in window.notices)
            if not whole:
                yield follow.sentences.line(window)
    if whole:
        earlier = sum(map(len, jobs[:-1]))
        if earlier:
            yield f"note   Windows of earlier jobs before this one's: {earlier:,}; what drifted in them is not told."
        yield from follow.sentences.state(jobs[-1][-1])


def _summary(drifted: list[str]) -> str:
    if not drifted:
        return "nothing has drifted."
    return f"{len(drifted)} alarm{'s' if len(drifted) > 1 else ''}; the first: {drifted[0]}"
