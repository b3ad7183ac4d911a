"""Samples that leave, die or cannot be told: commands end as documented; FastLoader as DataLoader (attack.md M1, M4 to M6, L7)."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from pipefix import FastLoader
from tests.attacks.scene import NUMBERS, PICTURES, ROOT, Scene, pictures_project, write

COMMANDS = (
    ("probe", "train.py", "--budget", "0.2", "-q"),
    ("convert", "train.py", "--to", "lmdb", "--out", "out", "--workers", "0", "-q"),
    ("tune", "train.py", "--budget", "0.2", "--trials", "1", "-q"),
    ("fix", "train.py", "--yes", "--budget", "0.2", "-q"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_sample_that_exits_with_0_is_no_success(scene: Scene, command: tuple[str, ...]) -> None:
    write(
        scene.project / "train.py",
        NUMBERS.replace("            return len", "            import sys; sys.exit(0)\n            return len"),
    )
    scene.remember()
    told = scene.run(*command).of_the_table()
    assert told.code == 3, str(told)
    scene.unchanged()


@pytest.mark.parametrize("raised", ["Own()", "GeneratorExit()", "KeyboardInterrupt()"])
def test_what_is_no_exception_is_told_as_the_samples(scene: Scene, raised: str) -> None:
    """`convert` called it a bug of its own, or an interrupt."""
    text = NUMBERS.replace("            return len", f"            if index == 5: raise {raised}\n            return len")
    write(scene.project / "train.py", f"class Own(BaseException):\n    pass\n{text}")
    for workers in ("0", "2"):
        told = scene.run("convert", "train.py", "--to", "lmdb", "--out", f"out{workers}", "-q", "--workers", workers)
        told.ended_with(3)
        assert "ended the program" in told.err, str(told)
    if raised == "Own()":  # the others end as it does
        for command in COMMANDS[2:]:
            scene.run(*command).of_the_table()
    write(scene.project / "train.py", (scene.project / "train.py").read_text().replace("index == 5", "True"))
    scene.run(*COMMANDS[0], "--workers", "1" if raised == "Own()" else "0").ended_with(3)


def test_a_file_that_leaves_by_os_exit_is_told(scene: Scene) -> None:
    """By a process beside it, which the end of standard error waits for. Its exit code stays what it was."""
    write(scene.project / "train.py", NUMBERS + "\nimport os; os._exit(0)\n")
    command = [sys.executable, "-m", "pipefix", "doctor", "train.py"]
    ran = subprocess.run(command, cwd=scene.project, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert "os._exit()" in ran.stderr


def test_a_sample_that_kills_its_process_is_told(scene: Scene) -> None:
    write(
        scene.project / "train.py",
        NUMBERS.replace("            return len", "            import os; os.kill(os.getpid(), 9)\n            return len"),
    )
    reading, held = os.pipe()  # the process that tells it holds an end too, until it has
    code = scene.run(*COMMANDS[0]).code
    os.close(held)
    os.read(reading, 1)
    os.close(reading)
    assert (scene.place / "told.err").read_text().strip(), "it ended without a word"
    assert code != 0


def pictures(folder: Path, *contents: bytes) -> list[Path]:
    return [write(folder / f"{number}.jpg", content) for number, content in enumerate(contents)]


def jpeg(seed: int, **how: Any) -> bytes:
    small = torch.randint(0, 255, (6, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    file = io.BytesIO()
    Image.fromarray(small.numpy()).resize((160, 120)).save(file, "JPEG", **how)
    return file.getvalue()


def without_tables(data: bytes) -> bytes:
    """The picture's quantisation and Huffman tables taken out, as Motion-JPEG leaves them out."""
    kept, at = data[:2], 2
    while data[at + 1] != 0xDA:
        size = 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] not in (0xDB, 0xC4):
            kept += data[at : at + size]
        at += size
    return kept + data[at:]


def cut_progressive(data: bytes) -> bytes:
    """The first scans of a progressive picture, and an end as if it were whole."""
    scans = [at for at in range(len(data) - 1) if data[at : at + 2] == b"\xff\xda"]
    return data[: scans[len(scans) // 2]] + b"\xff\xd9"


class Pictures(Dataset):
    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.transform = transforms.Compose([transforms.Resize(64), transforms.CenterCrop(50), transforms.ToTensor()])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB"))


def outcome(loader: Any) -> list[Any]:
    """Its batches, or how the epoch ended."""
    torch.manual_seed(0)
    told: list[Any] = []
    try:
        told += list(loader)
    except Exception as error:  # noqa: BLE001 - which one is what is compared
        told.append(type(error).__name__)
    return told


@pytest.mark.parametrize("kind", ["without tables", "progressive, cut"])
def test_exact_pixels_of_strange_pictures_are_those_of_dataloader(tmp_path: Path, kind: str) -> None:
    whole = [jpeg(seed, optimize=seed % 2 == 0) for seed in range(4)]
    strange = without_tables(jpeg(9)) if kind == "without tables" else cut_progressive(jpeg(9, progressive=True))
    dataset = Pictures(pictures(tmp_path, *whole, strange, *whole))
    fast = FastLoader(dataset, batch_size=2, fuse="exact")
    for _ in range(2):
        theirs, ours = outcome(DataLoader(dataset, batch_size=2)), outcome(fast)
        assert len(theirs) == len(ours)
        for one, other in zip(theirs, ours, strict=True):
            assert one == other if isinstance(one, str) else torch.equal(one, other)


class Unsendable(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise type("MadeAtRunTime", (Exception,), {})("it cannot be pickled")
        return index


def test_an_error_that_cannot_be_pickled_is_told_and_not_waited_for() -> None:
    with pytest.raises(Exception, match="MadeAtRunTime"):
        list(FastLoader(Unsendable(), batch_size=2, num_workers=1))


class NotUtf8(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise OSError(2, "x" * 100_000, os.fsdecode(b"caf\xe9.jpg"))
        return index


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_sample_whose_name_is_not_utf_8_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.chdir(tmp_path)
    batches = list(FastLoader(NotUtf8(), batch_size=2, num_workers=workers, on_bad="skip", max_bad=0.5))
    assert sorted(torch.cat(batches).tolist()) == [0, 1, 2, 3, 4, 6, 7]


@pytest.mark.parametrize("message", ["'x' * 20_000_000", "'caf\\udce9'", "'\\x1b[31m\\0'"])
def test_messages_of_any_kind_are_told_in_short(scene: Scene, message: str) -> None:
    """All of 50 million characters came to the terminal; a surrogate ended `--on-bad quarantine` with 70."""
    text = NUMBERS.replace(
        "            return len", f"            if index == 5: raise ValueError({message})\n            return len"
    )
    write(scene.project / "train.py", text)
    convert = ("convert", "train.py", "--to", "lmdb", "-q", "--out")
    told = [scene.run(*convert, "bad", "--workers", "0").ended_with(3)]
    told.append(scene.run(*convert, "good", "--workers", "0", "--on-bad", "quarantine").ended_with(0))
    if "x" in message:  # through a worker's pipe
        write(scene.project / "train.py", text.replace("index == 5", "True"))
        told.append(scene.run(*COMMANDS[0], "--workers", "1").ended_with(3))
    for ran in told:
        assert len(ran.text) < 100_000 and "\x1b" not in ran.text, str(ran)


def test_a_target_that_changes_the_working_directory(scene: Scene) -> None:
    """The cache lay where the target had gone."""
    write(scene.project / "train.py", NUMBERS + "\nimport os; os.chdir(Path(__file__).parent / 'files')\n")
    scene.run("convert", "train.py", "--to", "lmdb", "--out", "out", "-q", "--workers", "0").ended_with(0)
    assert (scene.project / "out" / "manifest.json").exists() and not (scene.project / "files" / "out").exists()


def test_names_that_are_not_utf_8_in_a_conversion(scene: Scene) -> None:
    write(Path(os.fsdecode(os.fsencode(scene.project / "files") + b"/caf\xe9.bin")))
    told = scene.run("convert", "train.py", "--to", "lmdb", "--out", "out", "--workers", "0", "-q", "--on-bad", "quarantine")
    told.ended_with(0)
    scene.run("verify", "out").ended_with(0)


OPENED = """        opened = vars(self).setdefault("opened", os.getpid())
        if opened != os.getpid():
            Path(__file__).with_name("shared.txt").touch()
"""


def test_no_two_processes_read_through_what_one_sample_opened(scene: Scene) -> None:
    """A connection or an open file that workers inherit gives them each other's bytes, and a cache of garbage (design 4)."""
    pictures_project(scene.project, 6)
    text = PICTURES.replace("        with Image.open", f"{OPENED}        with Image.open")
    write(scene.project / "train.py", f"import os\n{text}")
    for budget in ("0.3", "1", "3"):
        scene.run("fix", "train.py", "--yes", "-q", "--budget", budget, "--only", "cache-sample").of_the_table()
        assert not (scene.project / "shared.txt").exists()
        if (scene.project / "pipefix.plan.toml").exists():
            break
    scene.run("convert", "train.py", "--to", "lmdb", "--out", "out", "--workers", "2", "-q", "--on-bad", "quarantine").ended_with(0)
    assert not (scene.project / "shared.txt").exists()


def test_a_step_that_changes_its_batch_is_measured(scene: Scene) -> None:
    """``batch.pop("labels")`` broke the probe where a kept batch was used again (design 7)."""
    step = "def train_step(batch):\n    return batch.pop('labels').sum() + batch.pop('size').sum()\n"
    text = NUMBERS.replace("return len(file.read())", "return {'size': len(file.read()), 'labels': index}")
    write(scene.project / "train.py", text + step)
    for workers in ("0", "1"):
        scene.run("probe", "train.py", "--budget", "0.3", "-q", "--workers", workers).ended_with(0)


def test_nothing_is_left_in_the_folder_for_temporary_files(scene: Scene) -> None:
    """Sockets' folders, drafts, recordings (design 8)."""
    for command in (("probe", "train.py", "--budget", "0.3", "-q", "--workers", "1"), COMMANDS[1], COMMANDS[2]):
        told = scene.run(*command).ended_with(0)
        assert not os.listdir(scene.place / "tmp"), str(told)
        assert "Exception ignored" not in told.err and "leaked" not in told.err, str(told)
