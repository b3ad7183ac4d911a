"""The whole of `pipefix fix` on a pipeline that waits, by what it kept and took back."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measured.row import Row, at_least, holds
from pipefix.cli.main import main
from tests.system.cli.test_fix import CODE


def rows() -> Iterator[Row]:
    """Four milliseconds of sleep a sample: workers help, however many cores there are."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="pf") as folder, contextlib.redirect_stdout(io.StringIO()):
        Path(folder, "waits_for_workers.py").write_text(CODE)
        os.chdir(folder)
        try:
            code = main(["fix", "waits_for_workers.py", "--only", "workers", "--budget", "5", "-q"])
            outcomes = json.loads(Path("pipefix.after.json").read_text())["outcomes"]
            gain = (outcomes[0].get("measured") or {}).get("gain") or [0.0]
            undone = main(["fix", "--undo"]) == 0 and not Path("pipefix.plan.toml").exists()
        finally:
            os.chdir(before)
            sys.modules.pop("waits_for_workers", None)
    value = gain["value"] if isinstance(gain, dict) else gain[0]
    yield at_least("cli: gain of `pipefix fix` where 4 ms a sample are waited", value, "x", 1.5)
    yield holds("cli: `pipefix fix` ended well, and was taken back", (code == 0) + undone, 2)
