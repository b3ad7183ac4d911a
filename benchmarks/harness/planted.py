"""Options that all benchmarks on planted pipelines take."""

from __future__ import annotations

import argparse


def options(parser: argparse.ArgumentParser, *, budget: float, only: str) -> None:
    parser.add_argument("--budget", type=float, default=budget, help=f"seconds a probe may take (default {budget:g})")
    parser.add_argument(
        "--patience", type=float, default=120.0, help="seconds to wait for a quiet machine before a case (default 120)"
    )
    parser.add_argument("--only", nargs="*", default=[], help=f"{only} one of these; the rest is left for later")
