"""Full disks, small shared memory, read-only file systems: an answer, never a hang and never a lost result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Told

ROOT = Path(__file__).resolve().parents[3]

Shell = Callable[..., Told]


def _may_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0


mounts = pytest.mark.skipif(not _may_mount(), reason="needs the right to mount file systems in a namespace of its own")


WORKERS = "loader = DataLoader(Good(), batch_size=16, num_workers=2)"
BIG = """
class Big(Good):
    def __getitem__(self, index):
        return torch.ones(512, 512)
loader = DataLoader(Big(), batch_size=16, num_workers=2)
"""
LARGE = """
class Large(Good):
    def __getitem__(self, index):
        return torch.full((256, 256), float(index))
data = Large()
"""


@pytest.fixture
def shell(tmp_path: Path, preloaded: str) -> Shell:
    """Run a shell line in a mount namespace of its own; ``$PIPEFIX`` is the program."""

    def shell(line: str, before: str = "true") -> Told:
        environment = {**os.environ, "PIPEFIX": preloaded, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        command = ["unshare", "-m", "sh", "-c", f"{before} && {line}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment)
        return Told(done.returncode, done.stdout, done.stderr)

    return shell


@pytest.fixture
def probed(target: Callable[[str], Path], shell: Shell) -> Shell:
    """Probe a target there; what the shell does before stands last."""

    def probed(more: str = "", before: str = "true", text: str = WORKERS) -> Told:
        return shell(f"$PIPEFIX probe {target(text)} -q --budget 2 {more}", before)

    return probed


@mounts
@pytest.mark.parametrize(
    ("size", "more", "whole"),
    [
        ("1m", "", "1.05 MB"),
        # As containers have it: two workers with two batches of 16.8 MB each in flight are too many, which they have time to make.
        ("64m", "--step-ms 30", "67.1 MB"),
    ],
)
def test_shared_memory_that_does_not_hold_the_batches(probed: Shell, size: str, more: str, whole: str) -> None:
    probed(more, f"mount -t tmpfs -o size={size} none /dev/shm", BIG).check(3, "/dev/shm", whole, "--shm-size")


@mounts
def test_small_batches_fit_into_64_mb(probed: Shell) -> None:
    told = probed("--json", "mount -t tmpfs -o size=64m none /dev/shm")
    assert told.code == 0 and json.loads(told.out)["verdict"]["sentence"]


@mounts
def test_no_shared_memory_at_all(probed: Shell) -> None:
    gone = "mount -t tmpfs -o ro none /dev/shm"
    probed("", gone).check(3, "could not be started", "/dev/shm")
    assert probed("--workers 0", gone).code == 0


@mounts
@pytest.mark.parametrize("flag", ["--out", "--trace"])
def test_a_disk_that_is_full(probed: Shell, flag: str) -> None:
    """The figures are printed all the same: only the file is lost, and none of it is left half written."""
    full = "mkdir -p full && mount -t tmpfs -o size=4k none full"
    told = probed(f"{flag} full/it; code=$?; ls -A full; exit $code", full, "loader = DataLoader(Good(), batch_size=16)")
    told.check(4, "could not be written: No space left on device", "full/it")
    assert "VERDICT" in told.out
    assert told.out.rstrip().splitlines()[-1] != "it" and ".pipefix" not in told.out


@mounts
def test_a_cache_on_a_disk_that_is_full(target: Callable[[str], Path], shell: Shell) -> None:
    full = "mkdir -p full && mount -t tmpfs -o size=3m none full"
    line = f"$PIPEFIX convert {target(LARGE)}:data --to lmdb --store sample --out full/cache -q"
    shell(line, full).check(4, "The disk that holds", "is full. Finished parts are kept", "Make room")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("line", ["--html /dev/full", "--json > /dev/full"])
@mounts
def test_a_device_that_takes_nothing(probed: Shell, line: str) -> None:
    probed(line, text="loader = DataLoader(Good(), batch_size=16)").check(4, "No space left on device")


@mounts
def test_a_read_only_project(probed: Shell, tmp_path: Path) -> None:
    sealed = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,ro,bind {tmp_path} && cd {tmp_path}"
    told = probed("", sealed)
    assert told.code == 0 and "VERDICT" in told.out
    probed("--out run.json", sealed).check(4, "run.json", "Read-only file system", "Choose a directory")


@mounts
def test_nowhere_to_put_temporary_files(probed: Shell) -> None:
    """A root that is read-only throughout: without workers nothing needs to be written, with them a socket does."""
    sealed = "mount --rbind / /mnt && for at in / /tmp /var/tmp /usr/tmp; do test -d $at && mount --bind $at $at; done; "
    sealed += "for at in / /tmp /var/tmp; do mount -o remount,ro,bind $at || exit 9; done; cd /"
    told = probed("--workers 0", sealed)
    if told.code == 9:
        pytest.skip("the root cannot be made read-only here")
    assert told.code == 0 and "VERDICT" in told.out, told.err
    probed("", sealed).check(3, "TMPDIR")


@mounts
def test_temporary_files_too_deep_for_a_socket_do_not_matter(probed: Shell, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    told = probed("", f"export TMPDIR={deep}")
    assert told.code == 0 and "VERDICT" in told.out, told.err


# -- Ctrl-C --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A directory for temporary files, with a name that is short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="pf") as name:
        yield Path(name)


@pytest.mark.parametrize("everybody", [True, False], ids=["from the terminal", "to the program alone"])
def test_ctrl_c(target: Callable[[str], Path], tmp_path: Path, temporary: Path, everybody: bool) -> None:
    path = target("loader = DataLoader(Good(), batch_size=16, num_workers=2)")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "pipefix", "probe", str(path), "--budget", "25", "--out", str(tmp_path / "run.json")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as program:
        assert program.stderr is not None
        said = ""
        for line in program.stderr:
            said += line
            if "round 2" in line:
                break
        begun = time.monotonic()
        (os.killpg if everybody else os.kill)(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=60)
    told = Told(program.returncode, out, said + err)
    told.check(130, "Interrupted: the figures above are what was known by then")
    assert time.monotonic() - begun < 50
    assert "VERDICT" in out and "Traceback" not in err
    assert json.loads((tmp_path / "run.json").read_text())["partial"] is True
    assert list(temporary.iterdir()) == []
    assert ends(program.pid)


def ends(group: int) -> bool:
    """Whether no process of a group is left. One that ends with its parent (Python's resource tracker) is a little later."""
    given_up = time.monotonic() + 15
    while time.monotonic() < given_up:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False
