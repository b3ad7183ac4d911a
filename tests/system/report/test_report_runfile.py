"""A run file on a disk that is really full."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pipefix.report.runfile import Run, read, write
from pipefix.vocabulary.errors import UnreadableFile


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        path = place / "run.json"
        write(Run(target="old"), path)
        with pytest.raises(UnreadableFile, match="No space left on device"):
            write(Run(target="new" * 40_000), path)
        assert read(path).target == "old"
        assert os.listdir(place) == ["run.json"]
    finally:
        subprocess.run(["umount", str(place)], check=True)
