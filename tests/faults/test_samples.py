"""Datasets, collate functions, streams and training steps that raise, die or lie; without workers and with two."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipefix
from pipefix.vocabulary.errors import TargetError
from tests.faults.conftest import Tell

BOTH = pytest.mark.parametrize("workers", [0, 2])


def loader(dataset: str, workers: int, **options: Any) -> str:
    given = "".join(f", {name}={value}" for name, value in options.items())
    return f"loader = DataLoader({dataset}, batch_size=8, num_workers={workers}{given})\n"


RAISES = """
class Torn(Good):
    def __getitem__(self, index):
        if index == 37:
            raise ValueError("the file of sample 37 is torn")
        return super().__getitem__(index)
"""


@BOTH
def test_a_sample_that_raises(tell: Tell, workers: int) -> None:
    told = tell(RAISES + loader("Torn()", workers, sampler="range(30, 64)"))
    told.check(3, "dataset[37] raised ValueError: the file of sample 37 is torn", "--seed N")
    assert 'raise ValueError("the file of sample 37 is torn")' in told.err
    assert "torch/utils/data" not in told.err and told.out == ""


def test_the_library_raises_the_same(target: Any) -> None:
    with pytest.raises(TargetError, match=r"dataset\[37\] raised ValueError") as raised:
        pipefix.probe(target(RAISES + loader("Torn()", 2, sampler="range(30, 64)")), budget=2)
    assert "in __getitem__" in (raised.value.user_traceback or "")
    assert raised.value.exit_code == 3


@BOTH
def test_errors_that_do_not_travel(tell: Tell, workers: int) -> None:
    """A constructor that wants more than a message, and an object that cannot be pickled."""
    text = """
    class Strange(Exception):
        def __init__(self, code, *, reason):
            super().__init__(code, reason)
            self.lock = __import__("threading").Lock()
    class Torn(Good):
        def __getitem__(self, index):
            raise Strange(7, reason="odd")
    """
    tell(text + loader("Torn()", workers)).check(3, "raised Strange", "odd")


def test_several_samples_at_once(tell: Tell) -> None:
    text = """
    class Batched(Good):
        def __getitems__(self, indices):
            raise KeyError("missing")
    """
    told = tell(text + loader("Batched()", 2))
    told.check(3, "__getitems__, asked for the samples 0, 1, 2, 3, 4, 5 and 2 more", "KeyError: 'missing'")


def test_a_length_that_lies(tell: Tell) -> None:
    text = """
    class Liar(Good):
        def __init__(self):
            self.items = list(range(5))
        def __getitem__(self, index):
            return self.items[index]
    """
    told = tell(text + loader("Liar()", 2))
    told.check(3, "dataset[5] raised IndexError: list index out of range", "__len__ says 64, so 63 is the last index")


@BOTH
def test_shapes_that_differ(tell: Tell, workers: int) -> None:
    text = """
    class Ragged(Good):
        def __getitem__(self, index):
            return torch.ones(3, 4 + index % 3)
    """
    told = tell(text + loader("Ragged()", workers))
    told.check(3, "Collating the samples 0, 1, 2, 3, 4, 5 and 2 more", "[3, 4] at entry 0 and [3, 5] at entry 1", "differ in shape")


def test_samples_that_are_none(tell: Tell) -> None:
    text = """
    class Holes(Good):
        def __getitem__(self, index):
            return None if index in (2, 5) else super().__getitem__(index)
    """
    told = tell(text + loader("Holes()", 2))
    told.check(3, "Of these samples, 2, 5 came as None", "leaves None out")


def test_samples_that_no_collate_knows(tell: Tell) -> None:
    text = """
    class Things(Good):
        def __getitem__(self, index):
            return {"thing": object()}
    """
    told = tell(text + loader("Things()", 2))
    told.check(3, "default_collate: batch must contain", "collate_fn of your own")


def test_a_collate_that_raises(tell: Tell) -> None:
    text = """
    def join(samples):
        return samples[99]
    """
    told = tell(text + loader("Good()", 2, collate_fn="join"))
    told.check(3, "Collating the samples 0, 1", "IndexError: list index out of range")
    assert "return samples[99]" in told.err


def test_a_step_that_raises(tell: Tell) -> None:
    text = """
    def train_step(batch):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    """
    told = tell(text + loader("Good()", 0))
    told.check(3, "The consumer (train_step) raised RuntimeError: mat1 and mat2 shapes")
    assert "in train_step" in told.err


def test_a_model_that_cannot_be_fed(tell: Tell) -> None:
    text = """
    class Texts(Good):
        def __getitem__(self, index):
            return "a text"
    model = torch.nn.Linear(8, 8)
    """
    told = tell(text + loader("Texts()", 0), "--full", budget=0.2)
    assert told.code == 0, "nobody said how the model is called: a guess that fails ends no probe"
    said = " ".join(told.out.split())
    assert "The model cannot be fed: the batch is a list without a tensor" in said
    assert "train_step(batch)" in said


def test_a_sampler_that_raises(tell: Tell) -> None:
    text = """
    class Broken:
        def __len__(self):
            return 8
        def __iter__(self):
            yield 1
            raise ValueError("no more orders")
    """
    told = tell(text + loader("Good()", 2, sampler="Broken()"))
    told.check(3, "ValueError: no more orders")
    assert "in __iter__" in told.err


def test_a_sampler_that_asks_for_nothing(tell: Tell) -> None:
    tell(loader("Good()", 0, sampler="iter([])")).check(3, "names no sample", "sampler")


# -- streams -------------------------------------------------------------------------------------------------------------


def test_a_stream_that_ends_at_once(tell: Tell) -> None:
    text = """
    class Empty(IterableDataset):
        def __iter__(self):
            return iter([])
    """
    tell(text + loader("Empty()", 2)).check(3, "stream ended at once", "__iter__")


def test_a_stream_that_can_be_read_once(tell: Tell) -> None:
    text = """
    class Once(IterableDataset):
        def __init__(self):
            self.items = iter(range(50))
        def __iter__(self):
            return self.items
    """
    told = tell(text + loader("Once()", 2))
    told.check(3, "can be read only once: it gave 50 samples", "begin anew")


@BOTH
def test_a_stream_that_raises(tell: Tell, workers: int) -> None:
    text = """
    class Breaks(IterableDataset):
        def __iter__(self):
            yield from range(5)
            raise OSError("the connection was closed")
    """
    tell(text + loader("Breaks()", workers)).check(3, "stream, at sample 5, raised OSError: the connection was closed")


# -- workers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("os._exit(3)", ["exit code 3", "os._exit()"]),
        ("os.kill(os.getpid(), 9)", ["signal 9 (SIGKILL)", "memory is short"]),
        ("os.kill(os.getpid(), 11)", ["signal 11 (SIGSEGV)", "faulthandler"]),
        ("os.kill(os.getpid(), 7)", ["signal 7 (SIGBUS)", "/dev/shm", "--shm-size"]),
    ],
)
def test_a_worker_that_dies(tell: Tell, end: str, words: list[str]) -> None:
    text = f"""
    class Dies(Good):
        def __getitem__(self, index):
            if index == 5:
                {end}
            return super().__getitem__(index)
    """
    tell(text + loader("Dies()", 2)).check(3, "A worker process died", *words)


def test_a_batch_that_cannot_be_sent(tell: Tell) -> None:
    """Torch alone would print a traceback and wait for ever."""
    text = """
    def join(samples):
        return [lambda: one for one in samples]
    """
    told = tell(text + loader("Good()", 2, collate_fn="join"))
    told.check(3, "could not hand over its batch", "<lambda>", "Let collate_fn return")
    assert tell(text + loader("Good()", 0, collate_fn="join"), budget=0.2).code == 0


def test_a_worker_init_that_raises(tell: Tell) -> None:
    text = """
    def begin(worker):
        raise PermissionError(f"worker {worker} may not open the database")
    """
    told = tell(text + loader("Good()", 2, worker_init_fn="begin"))
    told.check(3, "worker_init_fn raised PermissionError: worker 0 may not open the database")
    assert "in begin" in told.err


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_dataset_that_cannot_be_pickled(tell: Tell, method: str) -> None:
    text = """
    class Held(Good):
        def __init__(self):
            self.transform = lambda pixels: pixels
    """
    told = tell(text + loader("Held()", 2, multiprocessing_context=f"'{method}'"))
    told.check(3, f"({method}) could not be started", "lambda", "top level of the file")
    assert "Traceback" not in told.err


def test_the_loaders_own_timeout(tell: Tell) -> None:
    text = """
    class Slow(Good):
        def __getitem__(self, index):
            import threading
            threading.Event().wait()
    """
    told = tell(text + loader("Slow()", 1, timeout=1))
    told.check(3, "timed out after 1 seconds", "timeout=")


# -- before the first sample -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("raise ValueError('no data here')", 3, ["raised ValueError: no data here", "python FILE.py"]),
        ("1 +", 3, ["SyntaxError"]),
        ("import nosuchpackage", 3, ["No module named 'nosuchpackage'", "Install 'nosuchpackage'"]),
        ("Good.length = 0\nloader = DataLoader(Good(), batch_size=2)", 3, ["its length is 0", "the filters"]),
        ("Good.length = 1\ndata = Good()", 3, ["its length is 1", "at least"]),
        ("del Good", 3, ["defines no Dataset", "train.py:NAME"]),
        ("a = Good()\nb = Good()", 3, ["defines 2 candidates", "train.py:a  (Good)", "as listed above"]),
        ("def loader():\n    return None\ndel Good", 3, ["is None", "return what it makes"]),
        ("loader = DataLoader(Good(), batch_size=100, drop_last=True)", 2, ["64 samples, batch_size 100", "--batch-size"]),
    ],
)
def test_files_that_cannot_be_probed(tell: Tell, text: str, code: int, words: list[str]) -> None:
    tell(text).check(code, *words)


def test_a_file_that_is_not_there(tell: Tell, tmp_path: Path) -> None:
    tell(tmp_path / "trian.py").check(3, "There is no file", "trian.py", "FILE.py:name")


def test_a_directory_without_classes(tell: Tell, datasets: Path, tmp_path: Path) -> None:
    tell(tmp_path).check(3, "not in ImageFolder layout", "photos/cat/1.jpg")
    tell(datasets / "empty").check(3, "not in ImageFolder layout")
    many = tmp_path / "many"
    for number in range(300):
        (many / f"without pictures {number:03d}").mkdir(parents=True)
    told = tell(many)
    told.check(3, "not in ImageFolder layout", "without pictures 000", "photos/cat/1.jpg")
    assert "without pictures 100" not in told.err, "not three hundred names"


def test_a_directory_is_refused_at_its_first_folder_without_pictures(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`probe /` went through the whole disk before it said so."""
    for name in ("bin", "home"):
        (tmp_path / name).mkdir()
    walked: list[str] = []
    walk = os.walk

    def noted_walk(top: str, **how: bool) -> Iterator[Any]:
        walked.append(os.path.basename(top))
        return walk(top, **how)

    monkeypatch.setattr(os, "walk", noted_walk)
    tell(tmp_path).check(3, "'bin'")
    assert "home" not in walked


def test_torn_pictures(tell: Tell, datasets: Path) -> None:
    told = tell(datasets / "torn", "--workers", "2", "--batch-size", "2", budget=30)  # it ends at the first torn one
    told.check(3, "dataset[", "raised", "--seed N")


def test_tiny_datasets_are_no_error(tell: Tell) -> None:
    told = tell("Good.length = 2\nloader = DataLoader(Good(), batch_size=32)", budget=0.2)
    assert told.code == 0 and "VERDICT" in told.out


STATEFUL = """
import zlib
PACKED = zlib.compress(np.random.default_rng(0).integers(0, 9, 60_000, dtype=np.uint8).tobytes())
class Stateful(Good):
    def unpack(self, raw):
        self.last = np.frombuffer(zlib.decompress(raw), dtype=np.uint8).copy()
        return len(self.last)
    def __getitem__(self, index):
        self.last = None
        size = self.unpack(PACKED)
        return torch.from_numpy(self.last[:size])
"""


def test_code_that_does_not_run_with_a_stage_replaced(target: Any) -> None:
    """What a method leaves on its object is missing where its result came from a recording. That is ours to notice, not theirs."""
    begun: list[str] = []

    def enough(phase: str, done: float) -> None:
        begun.append(phase)
        if phase.startswith("round 2") and "round 2" in begun[-2] and "decode-recorded" not in phase:
            raise KeyboardInterrupt  # a whole round was made, and that arm's turn in the next has come or is left out

    run = pipefix.probe(target(STATEFUL + loader("Stateful()", 0)), budget=60, progress=enough)
    arms = {arm.name: arm for arm in run.arms}
    declined = arms["decode-recorded"].declined or ""
    assert declined.startswith("the pipeline does not run with that replaced: dataset[") and "TypeError" in declined, declined
    assert arms["real"].rates and not arms["decode-recorded"].rates
