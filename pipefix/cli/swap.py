"""Move augmentation to whole batches (Kornia, DALI), and show that it is the same.

TARGET is what `pipefix probe` takes, but no training program; its dataset's transforms are torchvision's, old or new, or classes
derived from them. Nothing of yours is changed: the report says what stays and what moves.

With --check some of your samples are made both ways with the same seed: by your own list and by the swap. The exit code is then 1
where they differ.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pipefix
from pipefix.cli import arguments, destination
from pipefix.cli.command import options
from pipefix.cli.deliver import delivered
from pipefix.vocabulary.errors import GateFailed


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix swap TARGET --to kornia|dali [options]"
    arguments.add_target(parser, "what to read the transforms from")
    parser.add_argument("--to", choices=("kornia", "dali"), required=True, help="where they move: Kornia or DALI")
    parser.add_argument("--transforms", metavar="NAME", help="the dataset's attribute that holds them, where it has no usual name")
    parser.add_argument("--check", action="store_true", help="show that it is the same; exit with 1 where it is not")
    parser.add_argument("--run", type=Path, metavar="RUN", help="a run file of the same target, for the predicted gain")
    parser.add_argument("--html", type=Path, metavar="PATH", help="write a report with a contact sheet; implies --check")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of text")
    parser.add_argument(
        "--samples", type=arguments.batch_size, default=16, metavar="N", help="samples of yours to check on (default: 16)"
    )
    parser.add_argument("--device", metavar="DEVICE", help="where to check: cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--seed", type=arguments.seed, default=0, metavar="N", help="seed of the random numbers (default: 0)")
    arguments.add_quiet(parser)


def run(arguments: Namespace) -> int:
    destination.check(html=arguments.html)
    checked = arguments.check or arguments.html is not None
    swapped = delivered(
        lambda progress: pipefix.swap(arguments.target, **options(arguments, "check"), check=checked, progress=progress), arguments
    )
    if swapped.parity is not None and not swapped.parity.holds:
        apart = "the two sides differ by more than 1/255 on average or 4/255 at the 99th percentile, as told above"
        raise GateFailed(f"pipefix swap --check: {apart}.", advice="Leave these transforms on the CPU.")
    return 0
