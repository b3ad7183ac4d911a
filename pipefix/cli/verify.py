"""Check a cache: every checksum, every index, every record, and whether its source is what it was.

Nothing of the cache is executed, and nothing is written. Mend what is damaged with the command that made the cache, and --update.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pipefix
from pipefix.cli import arguments, console
from pipefix.cli.progress import Paced
from pipefix.vocabulary.errors import GateFailed


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix verify CACHE [options]"
    parser.add_argument("cache", metavar="CACHE", type=arguments.place, help="a cache's directory, or its URL")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    arguments.add_quiet(parser)


def run(arguments: Namespace) -> int:
    from pipefix.caches.manifest import refuse_what_is_no_cache

    if isinstance(arguments.cache, Path):
        refuse_what_is_no_cache(arguments.cache)  # before PyTorch is loaded, which takes seconds
    with console.stdout_reserved(), Paced(quiet=arguments.quiet) as progress:
        progress("loading", 0.0)

        found = pipefix.verify(arguments.cache, progress=progress)
    from pipefix.report import cache_report, terminal

    if arguments.json:
        console.document(cache_report.as_dict(found, sound=found.sound))
    else:
        console.report(terminal.lines, cache_report.verified(found))
    if not found.sound:
        far = not isinstance(arguments.cache, Path)
        anew = "Make it anew elsewhere: pipefix convert TARGET --out s3://BUCKET/OTHER, and the other arguments as before"
        advice = anew if far else f"Mend it from its source: {found.manifest.update(arguments.cache)}"
        raise GateFailed(f"{arguments.cache} is damaged.", advice=advice)
    return 0
