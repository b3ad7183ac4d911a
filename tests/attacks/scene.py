"""A user's folder, what can be seen of it from outside, and commands run in it: forked from here, where torch is loaded."""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import importlib
import multiprocessing
import os
import pkgutil
import signal
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import process, util
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tests.doubles.fence import fenced

ROOT = Path(__file__).resolve().parents[2]
CODES = {0, 1, 2, 3, 4, 5, 130}
"""Of the documented table. 70, a bug in pipefix, is none of them."""
HUNG = -signal.SIGALRM
LONGEST_S = 100
"""A command that has not ended by then waits for ever."""

NUMBERS = """
from pathlib import Path
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __init__(self, folder=Path(__file__).parent / "files"):
        self.paths = sorted(folder.glob("*.bin"))
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return len(file.read())

dataset = Files()
loader = DataLoader(dataset, batch_size=4)
"""
"""A target: how long files are."""

PICTURES = """
from pathlib import Path
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

class Pictures(Dataset):
    def __init__(self, transform):
        self.transform = transform
        self.paths = sorted((Path(__file__).parent / "files").glob("*.jpg"))
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        with Image.open(self.paths[index]) as image:
            return self.transform(image), index

dataset = Pictures(transforms.Compose([transforms.Resize(32), transforms.CenterCrop(32), transforms.ToTensor()]))
loader = DataLoader(dataset, batch_size=4)
"""
"""A target that a cache makes faster by far."""


def write(path: Path, content: str | bytes = b"mine\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def numbers_project(folder: Path, files: int = 12) -> Path:
    """A folder with ``train.py`` and the files that it reads."""
    write(folder / "train.py", NUMBERS)
    for number in range(files):
        write(folder / "files" / f"{number:03d}.bin", bytes(number + 1))
    return folder


def pictures_project(folder: Path, files: int = 8) -> Path:
    import numpy as np
    from PIL import Image

    write(folder / "train.py", PICTURES)
    (folder / "files").mkdir(exist_ok=True)
    for number in range(files):
        pixels = np.random.RandomState(number).randint(0, 255, (75, 100, 3), dtype="uint8")
        Image.fromarray(pixels).resize((1200, 900)).save(folder / "files" / f"{number}.jpg")
    return folder


# -- what can be seen -------------------------------------------------------------------------------------------------------


def look(*places: Path) -> dict[str, tuple[Any, ...]]:
    """Every path below: its kind and mode, where a link leads, and a hash of what a file holds. Links are not followed."""
    seen: dict[str, tuple[Any, ...]] = {}

    def add(path: Path) -> None:
        status = path.lstat()
        kind = stat.S_IFMT(status.st_mode)
        inside: str | None = None
        if kind == stat.S_IFLNK:
            inside = os.readlink(path)
        elif kind == stat.S_IFREG:
            inside = hashlib.sha256(path.read_bytes()).hexdigest()
        seen[str(path)] = (kind, stat.S_IMODE(status.st_mode), inside)
        if kind == stat.S_IFDIR:
            for name in os.listdir(path):
                add(path / name)

    for place in places:
        if os.path.lexists(place):
            add(place)
    return seen


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What was there before and is gone or different now; what is new is no change."""
    return [f"{path} {'changed' if path in after else 'is gone'}" for path in sorted(before) if after.get(path) != before[path]]


# -- commands ---------------------------------------------------------------------------------------------------------------


class Ran(NamedTuple):
    arguments: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def __str__(self) -> str:
        ended = "never ended" if self.code == HUNG else f"ended with {self.code}"
        return f"pipefix {' '.join(self.arguments)} {ended}:\n{self.text[-1500:]}"

    def of_the_table(self) -> Ran:
        assert self.code in CODES, str(self)
        assert "bug in pipefix" not in self.text and "outside the fence" not in self.text, str(self)
        return self

    def ended_with(self, *codes: int) -> Ran:
        self.of_the_table()
        assert self.code in codes, str(self)
        return self


def warm() -> None:
    """Import here what commands import, so that each of them starts at once."""
    import torch

    torch.set_num_threads(1)
    import pipefix

    others = ("pipefix.__main__", "pipefix.auto", "pipefix.watching.lightning", "pipefix.watching.transformers")
    names = [info.name for info in pkgutil.walk_packages(pipefix.__path__, "pipefix.") if not info.name.startswith(others)]
    for name in ("torch._dynamo", "torchvision.transforms", "lmdb", "pyarrow.parquet", "jinja2", "rich.table", *names):
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001, S112 - an extra that is not installed: the commands that need it say so themselves
            continue


def start(folder: Path, *arguments: str, safe: Path, output: Path, before: Callable[[], object] | None = None) -> int:
    """Begin a command in a session of its own; the process's number. Nothing outside ``safe`` can be removed by it."""
    sys.stdout.flush()
    sys.stderr.flush()
    ready, begun = os.pipe()
    pid = os.fork()
    if pid:
        os.close(begun)
        os.read(ready, 1)  # only then is there a group that can be ended
        os.close(ready)
        return pid
    os.setsid()
    os.close(ready)
    os.close(begun)
    return _become(folder, arguments, safe, output, before)


def _become(folder: Path, arguments: tuple[str, ...], safe: Path, output: Path, before: Callable[[], object] | None) -> NoReturn:
    code: Any = 1
    try:
        for number, name in ((0, os.devnull), (1, f"{output}.out"), (2, f"{output}.err")):
            descriptor = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(folder)
        temporary = safe / "tmp"
        temporary.mkdir(exist_ok=True)
        os.environ.update(TMPDIR=str(temporary), COLUMNS="100", NO_COLOR="1", OMP_NUM_THREADS="1")
        for name in ("PIPEFIX_TRACEBACK", "PYTEST_CURRENT_TEST"):
            os.environ.pop(name, None)
        tempfile.tempdir = None
        # What this process inherits of multiprocessing is not its own to remove.
        util._finalizer_registry.clear()  # type: ignore[attr-defined]
        process._children.clear()  # type: ignore[attr-defined]
        multiprocessing.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]
        sys.path[:] = [path for path in sys.path if path not in ("", str(folder))]
        sys.argv = ["pipefix", *arguments]
        gc.disable()  # what was loaded before the fork is not gone through
        if before is not None:
            before()
        faulthandler.register(signal.SIGALRM, chain=True)  # where it waits, before that ends it
        signal.alarm(LONGEST_S)
        with fenced(safe, Path("/dev/shm")):
            from pipefix.cli.main import run

            run()
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:  # noqa: BLE001 - told, and seen by the exit code
        traceback.print_exc()
        code = 71
    finally:
        try:
            util._exit_function()  # type: ignore[attr-defined]
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # or what is left of it would go on with the tests
            os._exit(code if isinstance(code, int) else 1)


def ended(pid: int) -> int:
    """Wait for a command; whatever of it lives on is ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    end_group(pid)
    return code


def end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@contextmanager
def cut_short(seconds: int = 20) -> Iterator[None]:
    """A command in it that has not ended by then waits for ever, where waiting is what is feared."""
    global LONGEST_S
    before, LONGEST_S = LONGEST_S, seconds
    try:
        yield
    finally:
        LONGEST_S = before


class Scene:
    """A place of its own for one case: everything below is the user's, and looked at before and after."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.project = place / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        self.before: dict[str, Any] = {}

    def run(self, *arguments: str | Path, cwd: Path | None = None, before: Callable[[], object] | None = None) -> Ran:
        texts = tuple(map(str, arguments))
        output = self.place / "told"
        code = ended(start(cwd or self.project, *texts, safe=self.place, output=output, before=before))
        out, err = (Path(f"{output}.{name}").read_text(errors="replace") for name in ("out", "err"))
        return Ran(texts, code, out, err)

    def remember(self, *places: Path) -> None:
        self.before = look(*(places or (self.place,)))

    def unchanged(self, *but: Path) -> None:
        """Nothing that was remembered is gone or different, but for what these paths hold."""
        now = look(*{Path(path) for path in self.before})
        mine = [str(self.place / "told"), str(self.place / "tmp"), *map(str, but)]
        wrong = [line for line in changes(self.before, now) if not any(line.startswith(f"{path}") for path in mine)]
        assert not wrong, "\n".join(wrong)

    def made(self) -> list[str]:
        """What is new since, relative to the scene; what the suite itself wrote, and Python, left out."""
        now = sorted(look(self.place).keys() - self.before.keys())
        mine = (str(self.place / "told"), str(self.place / "tmp"))
        return [path[len(str(self.place)) + 1 :] for path in now if not path.startswith(mine) and "__pycache__" not in path]


def cached_project(place: Path) -> Path:
    """A project of numbers with the finished caches `lmdb` and `parquet`."""
    scene = Scene(place)
    numbers_project(scene.project)
    for to, store in (("lmdb", "source"), ("parquet", "rows")):
        scene.run("convert", "train.py", "--to", to, "--store", store, "--out", to, "--workers", "0", "-q").ended_with(0)
    return scene.project


def fixed_project(place: Path) -> Path:
    """A project of pictures in which one step is kept: a cache of smaller ones."""
    scene = Scene(place)
    pictures_project(scene.project)
    keep_a_step(scene)
    return scene.project


BUDGETS = ("0.3", "1", "3", "10")
"""On a machine that is busy the gain may be hidden in noise for a while."""


def fix_with(budget: str) -> tuple[str, ...]:
    """The command that keeps a cache of samples for `pictures_project`."""
    return ("fix", "train.py", "--yes", "-q", "--budget", budget, "--only", "cache-sample")


def keep_a_step(scene: Scene) -> None:
    """Have `pipefix fix` keep a cache."""
    for budget in BUDGETS:
        told = scene.run(*fix_with(budget)).ended_with(0)
        if (scene.project / "pipefix.plan.toml").exists():
            return
    raise AssertionError(str(told))
