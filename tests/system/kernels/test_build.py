"""What depends on the compiler that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipefix.kernels import build


def test_the_sources_build_without_a_warning(tmp_path: Path) -> None:
    lacking = build.missing()
    if lacking:
        pytest.skip(f"{lacking[0]} {lacking[1]}")
    made = build.build(tmp_path / "elsewhere" / "_native.abi3.so", ("-Wall", "-Wextra", "-Werror"))
    assert made.exists()
    assert [path.name for path in made.parent.iterdir()] == [made.name], "nothing else is left behind"
