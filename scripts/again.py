"""Runs the tests that failed once more, each for the first time in a process with nothing before it. `.ci/run` alone uses this.

    python scripts/again.py CACHE_DIR    # the cache_dir of the pytest run in which they failed

More than three failures are no chance: nothing is run and the exit code is 1. A test that passes now is printed as FLAKY: it is a
defect of the test (or of the code), and the next change mends it or takes it out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 3


def failed_tests(cache: Path) -> list[str]:
    """Ids of the tests that failed in the run whose cache this is."""
    record = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(record.read_text(encoding="utf-8"))) if record.exists() else []


def passes(test: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    return subprocess.run(command, check=False).returncode == 0


def main(cache: str) -> int:
    failed = failed_tests(Path(cache))
    if not failed:
        print("No test failed: nothing is run again.")
        return 1
    if len(failed) > MOST:
        print(f"{len(failed)} tests failed: more than {MOST} are not run again.")
        return 1
    flaky = [test for test in failed if passes(test)]
    for test in flaky:
        print(f"FLAKY {test}")
    for test in failed:
        if test not in flaky:
            print(f"FAILED twice: {test}")
    return 0 if flaky == failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
