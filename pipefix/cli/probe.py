"""Measure where the time goes in a data pipeline, and what each remedy is worth.

TARGET is FILE.py, FILE.py:name, package.module:name, or a directory of class folders. The named thing is a Dataset, an
IterableDataset, a DataLoader, or a function without required arguments that returns one. A DataLoader brings its settings;
train_step(batch) or model in the same file is what consumes the batches. Loading a target runs its code.

TARGET may also be a training program with its arguments: pipefix probe train.py -- --epochs 3, or -m package.train -- --epochs 3
for a module. It runs until its training loop is warm; that loop's loader is probed there, beside the step as long as it takes
there, and the program is ended. So is a FILE.py that would train when it is imported, or hands over nothing and says what to do
under if __name__ == "__main__".

The report goes to standard output, progress to standard error. Ctrl-C reports what is known by then.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from pipefix.cli import arguments, destination
from pipefix.cli.command import options, used
from pipefix.cli.deliver import Progress, delivered
from pipefix.vocabulary.errors import GateFailed, Interrupted

if TYPE_CHECKING:
    from pipefix.report.runfile import Run

BUDGET, QUICK = 60.0, 20.0
ENDING = 1.0
"""Seconds that pass after the last measurement."""
VERDICTS = ("input-bound", "step-bound", "balanced", "inconclusive")
GATES = (*VERDICTS, "problem")

TAKES_PROGRAM = True


def prepare_parser(parser: ArgumentParser) -> None:
    add = parser.add_argument
    parser.usage = "pipefix probe TARGET [options] [-- ARGUMENTS]"
    arguments.add_target(parser, "what to probe")
    time = parser.add_mutually_exclusive_group()
    spent = "time to spend; trials of fixes may take some seconds more (default: 60)"
    time.add_argument("--budget", type=arguments.seconds, default=BUDGET, metavar="SECONDS", help=spent)
    time.add_argument("--quick", action="store_const", const=QUICK, dest="budget", help="about 20 seconds: wider intervals")
    add("--batch-size", type=arguments.batch_size, metavar="N", help="instead of the loader's, or where there is none")
    add("--workers", type=arguments.workers, metavar="N", help="worker processes, likewise")
    arguments.add_consumer(parser)
    add("--recording-budget", type=arguments.size, default=1_000_000_000, metavar="SIZE", help="memory to record in (default: 1GB)")
    add("--full", action="store_true", help="print every figure, the verdict last")
    add("--json", action="store_true", help="print the run file instead of text")
    add("--out", type=Path, metavar="PATH", help="write the run file, for: pipefix show, pipefix compare")
    arguments.add_html(parser)
    add("--trace", type=Path, metavar="PATH", help="write a trace of some samples for Perfetto")
    add(
        "--fail-on", choices=GATES, action="append", default=[], metavar="WHAT",
        help=f"exit with 1 on this verdict ({', '.join(VERDICTS)}), or on a problem in the audit; may be repeated",
    )  # fmt: skip
    add("--seed", type=arguments.seed, default=0, metavar="N", help="seed of the probe's own choices (default: 0)")
    arguments.add_quiet(parser)


def run(arguments: Namespace) -> int:
    destination.check(out=arguments.out, html=arguments.html, trace=arguments.trace)
    begun = time.perf_counter()

    def probe(progress: Progress) -> Run:
        # Loading PyTorch takes seconds, ending its processes and the report another: to the user all that is the probe.
        left = max(1.0, arguments.budget - (time.perf_counter() - begun) - ENDING)
        chosen = options(arguments, "budget", "recording_budget", "out", "fail_on")
        run: Run = used("probe", arguments)(budget=left, recording_bytes=arguments.recording_budget, **chosen, progress=progress)
        return run

    probed = delivered(probe, arguments, out=arguments.out)
    if probed.partial:
        raise Interrupted("Interrupted: the figures above are what was known by then.")
    kind = probed.verdict.kind if probed.verdict is not None else "inconclusive"
    problems = ", ".join(finding.id for finding in probed.audit if finding.severity == "problem")
    for gate in arguments.fail_on:
        if gate == kind:
            raise GateFailed(f"pipefix probe: --fail-on {gate}: the verdict is {kind}.")
        if gate == "problem" and problems:
            raise GateFailed(f"pipefix probe: --fail-on problem: the audit found {problems}.")
    return 0
