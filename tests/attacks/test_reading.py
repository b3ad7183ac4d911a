"""Caches that are cut, made up or in a circle are told at once, and left (attack.md M2, M8, M9, L1)."""

from __future__ import annotations

import shutil

import pytest

from tests.attacks.scene import Scene, write
from tests.caches.test_hostile_caches import sealed_with


@pytest.mark.parametrize("what", ["sound", "cut", "flipped", "no manifest"])
def test_verify_only_reads(cached: Scene, what: str) -> None:
    part = cached.project / "lmdb" / "parts" / "00000.mdb"
    if what == "cut":
        part.write_bytes(part.read_bytes()[:5000])
    elif what == "flipped":
        data = bytearray(part.read_bytes())
        at = len(data) // 2
        for place in range(at, at + 4096, 7):
            data[place % len(data)] ^= 0xFF
        part.write_bytes(data)
    elif what == "no manifest":
        (cached.project / "lmdb" / "manifest.json").unlink()
    cached.remember()
    code = {"sound": (0,), "no manifest": (1, 4)}.get(what, (1,))
    told = cached.run("verify", "lmdb").ended_with(*code)
    cached.unchanged()
    assert cached.made() == []
    assert "--repair" not in told.text or what == "sound", f"verify only reads; what mends is convert --update:\n{told}"


def test_a_cache_in_a_cache_and_a_link_to_itself(cached: Scene) -> None:
    shutil.copytree(cached.project / "parquet", cached.project / "lmdb" / "parts" / "inner")
    (cached.project / "lmdb" / "again").symlink_to(".")
    cached.remember()
    cached.run("verify", "lmdb").of_the_table()
    cached.unchanged()


def test_records_that_were_damaged_and_sealed_again(cached: Scene) -> None:
    """Checksums of a stranger's cache fit whatever it holds: UnicodeDecodeError and IndexError, or another file (L6)."""
    sealed_with(cached.project / "lmdb", None)
    cached.remember()
    told = cached.run("verify", "lmdb").ended_with(1)
    cached.unchanged()
    assert "record 0" in told.text or "damaged" in told.text, str(told)
    write(
        cached.project / "reads.py",
        f"import pipefix, train\ndataset = pipefix.CachedDataset({str(cached.project / 'lmdb')!r}, dataset=train.dataset)\n",
    )
    cached.run("probe", "reads.py:dataset", "--budget", "0.2", "-q").of_the_table()
    cached.run("convert", "train.py", "--to", "lmdb", "--out", "lmdb", "--update", "--workers", "0", "-q").ended_with(0)
    cached.run("verify", "lmdb").ended_with(0)
