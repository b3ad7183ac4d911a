"""Store what a dataset reads or makes, so that it comes faster the next time.

TARGET is what pipefix probe takes, a training program included: then the dataset of its training loop is converted, in the program,
which is ended afterwards. Loading a target runs its code. --store says what is kept of a sample: source, the bytes of the
files it read, which the dataset's own code then reads again unchanged; resized, its images made smaller; decoded, their pixels;
sample, all up to the first random operation of its transforms; rows, its fields as columns (in Parquet; all others in LMDB).

Stopped at any moment, the same command goes on where it was. Use the result with: pipefix.CachedDataset(DIR, dataset=dataset)
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipefix.cli import arguments, console
from pipefix.cli.command import options, used
from pipefix.cli.deliver import delivered

TAKES_PROGRAM = True
STORES = ("source", "resized", "decoded", "sample", "rows")


def prepare_parser(parser: ArgumentParser) -> None:
    add = parser.add_argument
    parser.usage = "pipefix convert [TARGET] --to lmdb|parquet [options] [-- ARGUMENTS]"
    arguments.add_target(parser, "what to convert (default: what was probed here, or the only dataset here)", optional=True)
    add("--to", choices=("lmdb", "parquet"), required=True, help="the format of the cache")
    add("--store", choices=STORES, help="what is kept of a sample (default: source; rows in Parquet)")
    add(
        "--out", type=arguments.place, metavar="DIR",
        help="where the cache goes: a directory (default: cache-STORE), or a store, such as s3://bucket/cache",
    )  # fmt: skip
    add("--size", type=arguments.pixels, metavar="N", help="shorter side of resized (default: 256) or decoded images")
    add("--quality", type=arguments.quality, default=90, metavar="N", help="of JPEG and WebP (default: 90)")
    add("--workers", type=arguments.workers, metavar="N", help="processes (default: one a core)")
    add(
        "--on-bad", choices=("raise", "skip", "quarantine"), default="raise",
        help="what becomes of damaged samples: end, leave out, or leave out and list in DIR/quarantine.jsonl (default: raise)",
    )  # fmt: skip
    add("--max-bad", type=arguments.share, default=0.01, metavar="SHARE", help="end above this share (default: 1%%)")
    add("--tokenizer", metavar="FILE", help="tokenise with this tokenizer.json; rows only")
    add("--text", metavar="FIELD", help="the field that is tokenised")
    add("--limit", type=arguments.batch_size, metavar="N", help="take the first N samples of a stream")
    either = parser.add_mutually_exclusive_group().add_argument
    either("--update", action="store_true", help="rebuild what is damaged, or has changed in the source since; of a stream, all")
    either("--dry-run", action="store_true", help="predict size, time and gain from a sample; write nothing")
    add("--json", action="store_true", help="print the result as JSON")
    arguments.add_quiet(parser)


def run(arguments: Namespace) -> int:
    if arguments.target is None:
        from pipefix.api.history import target_here

        arguments.target, why = target_here(Path())
        console.note(f"converting {arguments.target}: {why}")
    verb, own = ("forecast", ("dry_run", "update")) if arguments.dry_run else ("convert", ("dry_run",))
    delivered(lambda progress: used(verb, arguments)(**options(arguments, *own), progress=progress), arguments)
    return 0
