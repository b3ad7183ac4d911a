"""Cold is cold: proven on real files, refused wherever the proof fails or would not mean what it says."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipefix.measurement import residency
from pipefix.measurement.residency import COLD, ColdProof
from pipefix.system.page_cache import resident_share

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="eviction and its proof are Linux only")


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    """A folder whose files can leave memory at all."""
    under = residency.filesystem(tmp_path)
    if under is None or under.in_memory or under.network or under.own_cache:
        pytest.skip(f"the temporary folder lies on {under.kind if under else 'an unknown file system'}")
    return tmp_path


def cold(paths: list[Path]) -> ColdProof:
    return residency.cold({str(path): [] for path in paths})


def resident(path: Path) -> float:
    with path.open("rb") as file:
        return resident_share(file.fileno(), str(path))


def files(folder: Path, count: int = 40, size: int = 110_000) -> list[Path]:
    made = [folder / f"{index}.bin" for index in range(count)]
    for path in made:
        with path.open("wb") as file:
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())
    return made


def test_read_files_are_in_memory_and_evicted_ones_are_not(on_disk: Path) -> None:
    paths = files(on_disk)
    for path in paths:
        path.read_bytes()
    assert [resident(path) for path in paths] == [1.0] * len(paths)
    proof = cold(paths)
    assert (proof.cold, proof.why) == (True, "")
    assert proof.before == 1.0
    assert proof.after is not None
    assert proof.after <= COLD
    assert (proof.files, proof.bytes) == (40, 40 * 110_000)


def test_evicted_files_are_read_in_again(on_disk: Path) -> None:
    paths = files(on_disk)
    assert cold(paths).cold
    assert residency.warm({str(path): [] for path in paths}, 60.0)
    assert [resident(path) for path in paths] == [1.0] * len(paths)


def test_unwritten_pages_are_synced_first_and_their_content_survives(on_disk: Path) -> None:
    paths = [on_disk / f"{index}.bin" for index in range(10)]
    contents = [os.urandom(300_001) for _ in paths]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    assert cold(paths).cold
    assert max(resident(path) for path in paths) <= COLD
    assert [path.read_bytes() for path in paths] == contents


def test_a_mapped_file_stays_and_the_word_is_refused(on_disk: Path) -> None:
    path, *others = files(on_disk, count=5)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) >= 0
        proof = cold([path, *others])
        assert not proof.cold
        assert proof.after is not None
        assert proof.after == pytest.approx(0.2, abs=0.02)
        assert f"{path} is in use: something maps it into memory" in proof.why
        assert "the limit is 1.0 %" in proof.why
    assert cold([path]).cold


def test_one_warm_page_in_a_thousand_is_still_cold_and_two_in_a_hundred_are_not(on_disk: Path) -> None:
    path = on_disk / "large.bin"
    path.write_bytes(bytes(1000 * mmap.PAGESIZE))
    assert cold([path]).cold
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            mapped.madvise(mmap.MADV_RANDOM)
            assert mapped[0] == 0
            assert cold([path]).cold
            assert sum(mapped[: 20 * mmap.PAGESIZE : mmap.PAGESIZE]) == 0
            assert not cold([path]).cold


def test_looking_brings_nothing_in(on_disk: Path) -> None:
    (path,) = files(on_disk, count=1, size=5_000_000)
    assert cold([path]).cold
    assert [resident(path) for _ in range(5)] == [0.0] * 5


STRANGER = """
import os, sys
from pipefix.measurement.residency import cold
from pipefix.system.page_cache import _mincore, resident_share
os.setgroups([]); os.setgid(65534); os.setuid(65534)
path = sys.argv[1]
handle = os.open(path, os.O_RDONLY)
os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
print(set(_mincore(handle, 0, os.fstat(handle).st_size, path)))
try:
    print(resident_share(handle, path))
except PermissionError:
    print("refused")
proof = cold({path: []})
print(proof.cold, proof.why)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to make a file of somebody else's")
def test_other_peoples_files_are_refused_because_the_kernel_hides_their_residency(on_disk: Path) -> None:
    """Asked as a stranger, mincore says "all in memory" of a file that is not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (path,) = files(Path(folder), count=1)
        path.chmod(0o444)
        done = subprocess.run([sys.executable, "-c", STRANGER, str(path)], capture_output=True, text=True, check=True)
    masked, residency_read, proof = done.stdout.splitlines()
    assert (masked, residency_read) == ("{1}", "refused")
    assert proof.startswith("False residency cannot be read: [Errno 1] the kernel does not say which pages are in memory")
