"""Types of option values (``90s``, ``500MB``, ``5%``), and options that several commands share."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

from pipefix.vocabulary import amounts
from pipefix.vocabulary.urls import is_remote

seconds, milliseconds, rate = amounts.seconds, amounts.milliseconds, amounts.rate
size, share, cores, price = amounts.size, amounts.share, amounts.cores, amounts.price


def _whole(least: int, most: int, range_: str, example: str) -> Callable[[str], int]:
    def reading(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number {range_}; write {example}")
        return value

    return reading


seed = _whole(0, 2**63 - 1, "from 0 to 2^63 - 1", "0")
batch_size = _whole(1, 2**31 - 1, "above 0", "32")
workers = _whole(0, 4096, "from 0 to 4096", "4")
pixels = _whole(1, 65535, "from 1 to 65535", "256")
quality = _whole(1, 100, "from 1 to 100", "90")


def add_target(parser: ArgumentParser, help: str, *, optional: bool = False) -> None:
    """What a command is used on; ``main`` puts what ``--arg`` gives into its name."""
    parser.add_argument("target", metavar="TARGET", nargs="?" if optional else None, help=help)
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the class or function that TARGET names"
    )


def add_consumer(parser: ArgumentParser) -> None:
    """What is emulated in place of a training step."""
    consumer = parser.add_mutually_exclusive_group()
    consumer.add_argument("--step-ms", type=milliseconds, metavar="MS", help="emulate a training step that takes so long a batch")
    consumer.add_argument("--target-rate", type=rate, metavar="RATE", help="emulate one that takes RATE samples a second")


def add_html(parser: ArgumentParser) -> None:
    parser.add_argument("--html", type=Path, metavar="PATH", help="write a report to open in a browser; it needs no network")


def add_quiet(parser: ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")


def place(text: str) -> Path | str:
    """A directory, or the URL of a place in a store."""
    return text if is_remote(text) else Path(text)
