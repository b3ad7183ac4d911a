"""Check a cache: every checksum, every index, every record, and whether its source is what it was.

Nothing of the cache is executed, and nothing is written. Mend what is damaged with the command that made the cache, and --update.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pipefix
from pipefix.cli import arguments
from pipefix.cli.deliver import delivered
from pipefix.vocabulary.errors import GateFailed


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix verify CACHE [options]"
    parser.add_argument("cache", metavar="CACHE", type=arguments.place, help="a cache's directory, or its URL")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    arguments.add_quiet(parser)


def run(arguments: Namespace) -> int:
    from pipefix.caches.manifest import read

    if isinstance(arguments.cache, Path):
        read(arguments.cache)  # tells what is no cache before PyTorch is loaded, which takes seconds
    checked = delivered(lambda progress: pipefix.verify(arguments.cache, progress=progress), arguments)
    if not checked.sound:
        raise GateFailed(f"{arguments.cache} is damaged.", advice=checked.manifest.refresh(arguments.cache))
    return 0
