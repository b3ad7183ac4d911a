"""Memory that is left under a control group: files in the page cache do not count as used."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipefix.loader import limits

GIB = 1 << 30


@pytest.mark.parametrize(
    ("version", "names", "prefix"),
    [("v2", ("memory.max", "memory.current"), ""), ("v1", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_")],
)
def test_the_page_cache_is_memory_that_is_left(
    version: str, names: tuple[str, str], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 64 * GIB}))
    monkeypatch.setattr(limits, "_own_groups", list)
    monkeypatch.setattr(limits, "_V2", tmp_path / "v2")
    monkeypatch.setattr(limits, "_V1", tmp_path / "v1")
    assert limits.memory_left() == 64 * GIB
    group = tmp_path / version
    group.mkdir()
    for name, bytes_ in zip(names, (10 * GIB, 9 * GIB), strict=True):
        (group / name).write_text(f"{bytes_}\n")
    assert limits.memory_left() == GIB
    (group / "memory.stat").write_text(f"anon 1\n{prefix}inactive_file {5 * GIB}\n{prefix}active_file {2 * GIB}\n")
    assert limits.memory_left() == 8 * GIB


def test_a_limit_of_an_outer_group_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_V2", tmp_path)
    monkeypatch.setattr(limits, "_own_groups", lambda: [tmp_path / "job" / "step", tmp_path / "job"])
    (tmp_path / "job" / "step").mkdir(parents=True)
    (tmp_path / "job" / "memory.max").write_text("4096\n")
    (tmp_path / "job" / "memory.current").write_text("1024\n")
    assert limits.memory_left() == 3072
