"""Stages of a program's batches: looked at where they are made, told, and not felt."""

from __future__ import annotations

import re

import pytest

from tests.programs.conftest import Place

DECODES = """\
import io, json, os, sys, time
from pathlib import Path
import numpy, torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

workers, method, fault = int(sys.argv[1]), sys.argv[2] or None, sys.argv[3]
drawn = numpy.random.default_rng(0).integers(0, 255, (192, 192, 3), dtype=numpy.uint8)
Image.fromarray(drawn).save("picture.png")

begun = time.monotonic()

def looks_begun():
    return any('"looked"' in file.read_text() for file in Path("pipefix-run").glob("events-*"))

class Pictures(Dataset):
    def __len__(self): return 100000
    def __getitem__(self, index):
        late = fault in ("gone", "torn") and index % 50 == 49 and (not os.path.exists("pipefix-run") or looks_begun())
        if fault == "gone" and late: open("gone.png", "rb")
        if fault == "torn" and late:
            try: Image.open(io.BytesIO(b"no picture"))
            except OSError as error: raise ValueError("torn") from error
        with open("picture.png", "rb") as file:
            picture = Image.open(file).convert("RGB")
        return torch.from_numpy(numpy.array(picture)[:8, :8]).float()

def enough():
    "What was noted by now is enough for a verdict: how soon that is depends on how busy the machine is."
    lines = [line for file in Path("pipefix-run").glob("events-*") for line in file.read_text().splitlines()]
    looked = [note["looked"]["batches"] for note in map(json.loads, lines) if "looked" in note]
    return len(looked) >= 5 and sum(looked) >= 8

def own(worker): print("worker", worker, flush=True)

if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = DataLoader(Pictures(), batch_size=4, num_workers=workers, multiprocessing_context=method, worker_init_fn=own)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for number, batch in enumerate(loader):
        optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
        if time.monotonic() - begun > (1 if fault == "brief" else 80): break
        if fault == "none" and number % 200 == 199 and enough(): break
    print(loader.worker_init_fn is own)
"""


AT_ONCE = {"PIPEFIX_RUN_LOOK_AFTER": "0.1"}


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_batches_are_made_of_is_told(workers: str, place: Place) -> None:
    place.write(DECODES)
    ran = place.run("train.py", workers, "fork" if workers == "1" else "", "none", env=AT_ONCE)
    assert (ran.code, ran.out.splitlines()) == (0, ["worker 0", "True"] if workers == "1" else ["True"]), ran.err
    (loop,) = ran.program.loops
    assert loop.looked >= 8
    assert max(loop.stages, key=lambda stage: loop.stages[stage].value) == "decode"
    assert 0.5 < sum(part.value for part in loop.stages.values()) < 1.05
    # Few looks on a busy machine leave it open what the largest part is, and then nothing is named.
    surely = all(part.high < loop.stages["decode"].low for stage, part in loop.stages.items() if stage != "decode")
    assert ("Making them is mostly decoding" in " ".join(ran.err.split())) == surely


def test_an_epoch_that_goes_on_is_looked_into(place: Place) -> None:
    """Its iterator was made before the time had come."""
    place.write(DECODES)
    ran = place.run("train.py", "0", "", "none", env={"PIPEFIX_RUN_LOOK_AFTER": "3"})
    assert ran.program.loops[0].looked >= 8, ran.err


@pytest.mark.parametrize("fault", ["gone", "torn"])
@pytest.mark.parametrize("workers", ["0", "1"])
def test_errors_show_no_frame_of_ours(workers: str, fault: str, place: Place) -> None:
    """Looks have begun when the sample is torn."""
    place.write(DECODES)
    words = ("train.py", workers, "fork" if workers == "1" else "", fault)
    ran, alone = place.run(*words, env=AT_ONCE), place.alone(*words)
    assert ran.code == alone.code == 1
    told, otherwise = (re.sub("0x[0-9a-f]+", "", one.err) for one in (ran, alone))
    assert told.startswith(otherwise)


def test_workers_that_are_not_forked_are_not_looked_into(place: Place) -> None:
    place.write(DECODES)
    ran = place.run("train.py", "1", "spawn", "brief", env=AT_ONCE)
    assert ran.out.splitlines() == ["worker 0", "True"], ran.err
    assert ran.program.loops[0].looked == 0


def test_it_can_be_left(place: Place) -> None:
    place.write(DECODES)
    assert place.run("train.py", "0", "", "brief", options=["--no-stages"], env=AT_ONCE).program.loops[0].looked == 0


def test_a_python_that_finds_no_pipefix_goes_without(place: Place) -> None:
    place.write(DECODES)
    place.write("""
        import runpy, sys
        sys.modules["pipefix"] = None
        sys.argv[:] = sys.argv[1:]
        runpy.run_path("train.py", run_name="__main__")
    """, "hidden.py")  # fmt: skip
    ran = place.run("hidden.py", "train.py", "0", "", "brief", env=AT_ONCE)
    assert ran.out == "True\n", ran.err
    assert ran.program.loops[0].looked == 0
