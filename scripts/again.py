"""Which failed tests may run once more with nothing beside them: those of rooms where a real clock judges real processes.

    python scripts/again.py CACHE_DIR    # the cache_dir of the pytest run in which they failed

Prints their ids, one a line. Where a failure stands as it is, it says why on standard error, prints nothing and exits with 1."""

from __future__ import annotations

import json
import sys
from pathlib import Path

CLOCKED = ("cli", "diagnosis", "measurement", "programs", "tuning", "watching")
"""Rooms whose tests time real loaders, workers and ranks. Beside other tests on two cores such a time can be anything. In all other
rooms (samples kept, pixels equal, files left alone) a test that fails once has found something."""
MOST = 3
"""More failures than this are no chance."""


def may_run_again(failed: list[str]) -> tuple[bool, str]:
    """Whether all of these may, and if not, why."""
    clocked = tuple(f"tests/{room}/" for room in CLOCKED)
    standing = [test for test in failed if not test.startswith(clocked)]
    if standing:
        return False, f"not run again, a clock does not judge there: {' '.join(standing)}"
    if len(failed) > MOST:
        return False, f"not run again: {len(failed)} tests failed, more than {MOST} are no chance"
    return bool(failed), "no test failed"


def main(cache: str) -> int:
    noted = Path(cache, "v", "cache", "lastfailed")
    failed = sorted(json.loads(noted.read_text())) if noted.exists() else []
    may, why = may_run_again(failed)
    print("\n".join(failed) if may else why, file=sys.stdout if may else sys.stderr)
    return 0 if may else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
