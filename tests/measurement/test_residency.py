"""Cold is cold: proven page by page, refused wherever the proof fails or would not mean what it says. A real disk is
asked in tests/system."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pipefix.measurement import residency
from pipefix.measurement.residency import ColdProof
from pipefix.system import page_cache
from pipefix.system.mounts import Filesystem
from pipefix.system.page_cache import PAGE

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="eviction and its proof are Linux only")


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Pages of a file in memory, of ten; as eviction leaves them where it says something of the file beforehand."""
    left: dict[str, int] = {}
    evicted: set[str] = set()

    def forget(path: str, parts: Any) -> None:
        evicted.add(path)

    def mincore(descriptor: int, start: int, length: int, path: str) -> bytes:
        held = left.get(Path(path).name, 0) if path in evicted else 10
        return bytes(held * [1] + (10 - held) * [0])

    monkeypatch.setattr(page_cache, "forget", forget)
    monkeypatch.setattr(page_cache, "_mincore", mincore)
    monkeypatch.setattr(residency, "filesystem", lambda path: Filesystem("ext4", "/", "/dev/disk"))
    return left


def files(folder: Path, count: int) -> list[Path]:
    paths = [folder / f"{index}.bin" for index in range(count)]
    for path in paths:
        path.write_bytes(bytes(10 * PAGE))
    return paths


def cold(paths: list[Path]) -> ColdProof:
    return residency.cold({str(path): [] for path in paths})


def test_cold_is_what_left_memory_by_its_pages(tmp_path: Path, pages: dict[str, int]) -> None:
    proof = cold(files(tmp_path, 4))
    assert (proof.cold, proof.why, proof.before, proof.after) == (True, "", 1.0, 0.0)
    assert (proof.files, proof.bytes) == (4, 40 * PAGE)


def test_a_file_that_stays_refuses_the_word_and_is_named(tmp_path: Path, pages: dict[str, int]) -> None:
    stays, *_ = paths = files(tmp_path, 5)
    pages[stays.name] = 10
    proof = cold(paths)
    assert (proof.cold, proof.after) == (False, pytest.approx(0.2)) and str(stays) in proof.why
    assert "20 % of the pages is still in memory after eviction (the limit is 1.0 %)" in proof.why


def test_one_page_in_a_hundred_is_still_cold_and_two_are_not(tmp_path: Path, pages: dict[str, int]) -> None:
    paths = files(tmp_path, 10)
    pages[paths[0].name] = 1
    assert cold(paths).cold
    pages[paths[1].name] = 1
    assert not cold(paths).cold


def test_one_file_under_two_names_counts_once(tmp_path: Path, pages: dict[str, int]) -> None:
    (path,) = files(tmp_path, 1)
    os.link(path, tmp_path / "again")
    (tmp_path / "link").symlink_to(path)
    proof = cold([path, tmp_path / "again", tmp_path / "link"])
    assert (proof.files, proof.bytes) == (1, 10 * PAGE)


def test_an_empty_file_has_nothing_in_memory(tmp_path: Path, pages: dict[str, int]) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert cold([path]).cold


def test_files_of_others_are_refused_where_the_kernel_hides_their_residency(
    tmp_path: Path, pages: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_told_the_truth", lambda status, path: False)
    paths = files(tmp_path, 1)
    proof = cold(paths)
    assert not proof.cold
    assert proof.why.startswith("residency cannot be read: [Errno 1] the kernel does not say which pages are in memory")


def test_files_that_cannot_be_evicted_are_named(tmp_path: Path) -> None:
    proof = cold([tmp_path / "nowhere.bin", tmp_path])
    assert not proof.cold
    assert proof.why == f"{tmp_path / 'nowhere.bin'} and 1 more cannot be evicted: No such file or directory"
    assert cold([tmp_path]).why == f"{tmp_path} cannot be evicted: not a regular file"
    assert cold([]).why == "there are no files to evict"


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm")
def test_files_in_memory_can_never_be_cold() -> None:
    path = Path(f"/dev/shm/pipefix-test-{os.getpid()}")
    path.write_bytes(bytes(100_000))
    try:
        proof = cold([path])
    finally:
        path.unlink()
    assert not proof.cold
    assert "lie in memory and can never be cold" in proof.why


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nfs4", "client-cold only"),
        ("fuse.s3fs", "client-cold only"),
        ("lustre", "client-cold only"),
        ("zfs", "a cache of its own"),
    ],
)
def test_other_caches_out_of_reach_refuse_the_word(
    tmp_path: Path, pages: dict[str, int], monkeypatch: pytest.MonkeyPatch, kind: str, words: str
) -> None:
    paths = files(tmp_path, 3)
    monkeypatch.setattr(residency, "filesystem", lambda path: Filesystem(kind, "/data", "server:/export"))
    proof = cold(paths)
    assert not proof.cold
    assert proof.after == 0.0
    assert words in proof.why
    assert kind in proof.why


def test_other_systems_decline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = files(tmp_path, 1)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cold(paths).why == "darwin has no way to put files out of memory and to prove it (Linux has)"


def test_only_what_was_read_is_evicted_and_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an archive that others train from."""
    (archive,) = files(tmp_path, 1)
    os.link(archive, tmp_path / "again")
    advised: list[tuple[int, int]] = []
    looked: list[tuple[int, int]] = []

    def mincore(descriptor: int, start: int, length: int, path: str) -> bytes:
        looked.append((start, length))
        return bytes(-(-length // PAGE))

    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, start, length, advice: advised.append((start, length)))
    monkeypatch.setattr(page_cache, "_mincore", mincore)
    monkeypatch.setattr(residency, "filesystem", lambda path: Filesystem("ext4", "/", "/dev/disk"))
    read = {str(archive): [(PAGE + 5, 10), (PAGE + 100, PAGE), (9 * PAGE, PAGE)], str(tmp_path / "again"): [(5 * PAGE, 1)]}
    proof = residency.cold(read)
    pages = [(PAGE, 2 * PAGE), (5 * PAGE, PAGE), (9 * PAGE, PAGE)]
    assert (advised, set(looked)) == (pages, set(pages))
    assert (proof.cold, proof.files, proof.bytes) == (True, 1, 4 * PAGE)


def test_a_large_file_of_which_nobody_saw_what_was_read_is_left_alone(
    tmp_path: Path, pages: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residency, "WHOLE", 5 * PAGE)
    (path,) = files(tmp_path, 1)
    assert "which parts of it were read cannot be seen" in cold([path]).why
    assert residency.cold({str(path): [(0, PAGE)]}).why == ""


def test_what_was_evicted_is_read_in_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "PIECE", 4 * PAGE)
    read: list[tuple[str, int, int]] = []
    genuine = os.preadv

    def preadv(descriptor: int, buffers: list[memoryview], start: int) -> int:
        count = genuine(descriptor, buffers, start)
        read.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, start // PAGE, count))
        return count

    monkeypatch.setattr(os, "preadv", preadv)
    whole, parts = files(tmp_path, 2)
    assert residency.warm({str(whole): [], str(parts): [(PAGE + 5, 10), (5 * PAGE, PAGE)]}, 60.0)
    assert read == [("0.bin", 0, 4 * PAGE), ("0.bin", 4, 4 * PAGE), ("0.bin", 8, 2 * PAGE), ("1.bin", 1, PAGE), ("1.bin", 5, PAGE)]


def test_what_could_not_be_read_in_again_is_told(tmp_path: Path) -> None:
    first, second = map(str, files(tmp_path, 2))
    assert not residency.warm({first: []}, -1.0), "no time was left"
    os.remove(first)
    assert not residency.warm({first: [], second: []}, 60.0)
    assert residency.warm({second: []}, 60.0)
