"""Programs that torch trains in, probed, converted and given plans from within; the quick of it is in tests/programs."""

from __future__ import annotations

import json

import pytest

from pipefix.caches.dataset import CachedDataset
from pipefix.plan.planfile import CacheChange
from tests.programs.conftest import Place
from tests.programs.test_in_program import MADE_AT, TRAINS, planned


@pytest.mark.parametrize("workers", ["0", "1"])
def test_training_goes_on_to_the_last_bit(workers: str, place: Place) -> None:
    place.write(TRAINS)
    ran, alone = place.run("train.py", workers, "2", options=["--probe=2"]), place.alone("train.py", workers, "2")
    assert (ran.code, ran.out) == (0, alone.out), ran.err
    assert ran.run is not None
    assert ran.run.stages, ran.err
    assert ran.run.target == MADE_AT
    assert ran.run.consumer.startswith("emulated")
    assert [(loop.loader, loop.steps) for loop in ran.program.loops] == [(MADE_AT, 40)]
    assert ran.program.loops[0].seconds < 30, "the time of the probe is none of the loop's"
    assert "VERDICT" in ran.err


def test_what_cannot_be_put_in_place_leaves_the_loader_as_it_is(place: Place) -> None:
    place.write(TRAINS)
    plan = planned(place, MADE_AT, cache=CacheChange(path="gone", store="sample"))
    ran, alone = place.run("train.py", "0", "1", options=["--plan", plan]), place.alone("train.py", "0", "1")
    assert (ran.code, ran.out) == (0, alone.out)
    told = " ".join(ran.err.split())
    assert "The plan could not be put in place, and the loader is as the program has it" in told
    assert "and there is none. Bring it back there, or take [cache] out of the plan." in told


def test_a_program_is_probed_and_ended(place: Place) -> None:
    place.write(TRAINS)
    done = place.verb("probe", "train.py", "--budget", "2", "--json", "--", "0", "1000")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["target"] == MADE_AT
    assert told["stages"]
    assert "KeyboardInterrupt" not in done.stderr
    assert "0x1." in done.stderr, "what the program prints goes to standard error"


@pytest.mark.parametrize("guarded", [True, False])
def test_a_file_that_is_a_program_is_run(guarded: bool, place: Place) -> None:
    """It hands over no dataset when it is imported, or would train then."""
    text = TRAINS.replace("sys.argv[1]), int(sys.argv[2])", "0), 1000").replace("Drawn()", "Drawn(60)")
    text = text.replace(
        "def __len__(self): return 60",
        "def __init__(self, length): self.length = length\n    def __len__(self): return self.length",
    )
    place.write(text if guarded else text.replace('if __name__ == "__main__":', "if True:"))
    done = place.verb("probe", "train.py", "--budget", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["target"] == "train.py:15"
    why = "hands over no dataset when it is imported" if guarded else "trains when it is imported"
    assert f"train.py {why}, so it is run to its training loop" in " ".join(done.stderr.split())


def test_the_dataset_of_a_program_is_converted(place: Place) -> None:
    place.write(TRAINS.replace("index + noise", "float(index)"))
    words = ("convert", "train.py", "--to", "lmdb", "--store", "sample", "--out", "cache", "--json")
    done = place.verb(*words, "--", "0", "1000")
    assert done.returncode == 0, done.stderr
    assert len(CachedDataset(place.folder / "cache")) == 60
