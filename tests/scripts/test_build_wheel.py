"""The wheel's recipe refuses what it cannot work with before it begins."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "build_wheel"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_wants_a_source_tree(tmp_path: Path) -> None:
    done = run(str(tmp_path), "--out", str(tmp_path / "dist"))
    assert done.returncode == 2
    absent = [tool for tool in ("cmake", "nasm") if not shutil.which(tool)]
    what = f"{' and '.join(absent)} cannot be found" if absent else f"{tmp_path} is no source tree of libjpeg-turbo"
    assert done.stderr == f"No wheel was built: {what}.\n"
    assert not (tmp_path / "dist").exists()
