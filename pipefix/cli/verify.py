"""Check a cache: every checksum, every index, every record, and whether its source is what it was.

Nothing of the cache is executed. --repair writes a damaged manifest anew from its copy, and makes damaged parts anew, for which the
target that the cache was made from is loaded, and that runs its code.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipefix.cli import arguments, console
from pipefix.cli.progress import Paced
from pipefix.vocabulary.errors import GateFailed


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix verify CACHE [options]"
    parser.add_argument("cache", metavar="CACHE", type=Path, help="a cache's directory")
    parser.add_argument("--sample", type=arguments.batch_size, metavar="N", help="check N records drawn at random instead of all")
    parser.add_argument("--repair", action="store_true", help="make damaged parts anew from the source")
    parser.add_argument("--target", metavar="TARGET", help="the source, where it is not called what it was called then")
    parser.add_argument("--seed", type=arguments.seed, default=0, metavar="N", help="which records --sample draws (default: 0)")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")


def run(arguments: Namespace) -> int:
    with console.stdout_reserved(), Paced(quiet=arguments.quiet) as progress:
        progress("loading", 0.0)
        from pipefix import api

        found = api.verify(
            arguments.cache,
            sample=arguments.sample,
            seed=arguments.seed,
            repair=arguments.repair,
            target=arguments.target,
            progress=progress,
        )
    from pipefix.report import conversion

    if arguments.json:
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(conversion.as_dict(found, sound=found.sound)), indent=1)
        console.results([text.decode("utf-8")])
    else:
        console.results(
            conversion.checked(
                found.manifest, str(found.folder), records=found.records, damage=found.damage, changed=found.changed,
                changed_count=found.changed_count, missing_count=found.missing_count, repaired=found.repaired,
                restored=found.restored, copy_damaged=found.copy_damaged, **console.manner(),
            )
        )  # fmt: skip
    if not found.sound:
        raise GateFailed(
            f"{arguments.cache} is damaged.", advice=f"Mend it from its source: pipefix verify {arguments.cache} --repair"
        )
    return 0
