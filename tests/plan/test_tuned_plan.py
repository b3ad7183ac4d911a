"""What a tuning leaves in the plan file: no older setting that contradicts it, and all that it did not look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from torch.utils.data import DataLoader

from pipefix.api.tune import Tuned, _reading_its_cache, _tuned
from pipefix.caches import convert as conversion
from pipefix.plan import planfile
from pipefix.plan.planfile import CacheChange, LoaderChange, PlanFile
from pipefix.report.tune_report import ConsumerName, TuneReporter
from pipefix.subject.load import load
from pipefix.system.machine import Machine
from pipefix.tuning.results import Goal, Trial, TuneResult, TuningPlan
from pipefix.tuning.space import Settings, Space
from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.settings import LoaderSettings
from tests.fixes.benchtop import Lines

MACHINE = Machine(system="Linux", kernel="6.1", python="3.11", effective_cores=2.0)
OLDER = PlanFile(
    target="data.py", loader=LoaderChange(num_workers=8, fuse="close", pin_memory=True),
    cache=CacheChange(path="pipefix-caches/source", store="source"),
)  # fmt: skip
BACKUP = "pipefix.plan.before-1.toml"


def tuned(
    folder: Path, chosen: Settings, older: PlanFile | None, *, ran: bool = True, partial: bool = False, name: str = planfile.NAME,
    follows: bool = False, workers: int | None = None,
) -> Tuned:  # fmt: skip
    """As typed in ``folder``, which the target's code has left."""
    path = Path(name)
    if older is not None:
        planfile.write(older, folder / path)
    rate = Interval(100.0, 99.0, 101.0)
    kept = "it could not be beaten" if chosen == Settings(2) else None
    rows = (Trial(chosen, rate),) if ran else ()
    result = TuneResult(rows, chosen, kept, rate, rate if kept else rate.scaled(1.4), (), None, "", partial=partial)
    space = Space(4, 4, declined={"pin_memory": "no CUDA device is present", "in_order": "--keep-order was given"})
    plan, settings = TuningPlan(space, Goal(), Settings(2)), LoaderSettings(batch_size=4, num_workers=2)
    telling = TuneReporter("data.py", settings, plan, result, ConsumerName("none", present=False), workers=workers)
    return _tuned(telling, "data.py", MACHINE, older, path, folder, [], followed=older if follows else None)


def test_what_it_found_takes_the_place_of_older_settings_and_the_rest_stays(tmp_path: Path) -> None:
    result = tuned(tmp_path, Settings(4), OLDER)
    plan = planfile.read(tmp_path / planfile.NAME)
    assert plan == result.plan and plan.loader is not None and plan.loader.evidence is not None
    assert (plan.loader.num_workers, plan.loader.fuse, plan.loader.pin_memory) == (4, "close", True)
    assert plan.cache == OLDER.cache
    assert (tmp_path / BACKUP).read_text() == planfile.encode(OLDER)
    assert any(f"kept as {BACKUP}" in note for note in result.report.notes)


@pytest.mark.parametrize(
    ("name", "back"),
    [
        ("pipefix.plan.toml", "pipefix fix --undo puts"),
        ("plans/pipefix.plan.toml", "pipefix fix --undo --out {0}/plans puts"),
        ("tuned.toml", "mv {0}/tuned.before-1.toml {0}/tuned.toml puts"),
    ],
)
def test_what_puts_the_older_plan_back_is_told_for_where_it_lies(tmp_path: Path, name: str, back: str) -> None:
    """It was always pipefix fix --undo, which would have taken back a plan of the folder that one is in."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    assert any(back.format(tmp_path) in note for note in tuned(tmp_path, Settings(4), OLDER, name=name).report.notes)


def test_where_nothing_is_better_than_the_code_an_older_plan_no_longer_says_otherwise(tmp_path: Path) -> None:
    result = tuned(tmp_path, Settings(2), OLDER)
    plan = planfile.read(tmp_path / planfile.NAME)
    assert plan.loader == LoaderChange(fuse="close", pin_memory=True) and plan.cache == OLDER.cache
    assert not result.changed and result.report.written is not None
    assert "no longer says num_workers = 8" in result.report.notes[0]
    assert (tmp_path / BACKUP).read_text() == planfile.encode(OLDER)


@pytest.mark.parametrize("how", [{"ran": False}, {"partial": True}])
def test_an_older_plan_that_nothing_was_held_against_stays_and_that_is_told(tmp_path: Path, how: dict[str, bool]) -> None:
    result = tuned(tmp_path, Settings(2), OLDER, **how)
    assert planfile.read(tmp_path / planfile.NAME) == OLDER and result.report.written is None
    assert "still says num_workers = 8, which was not tried" in result.report.notes[0]
    assert [path.name for path in tmp_path.iterdir()] == [planfile.NAME]


def test_an_older_plan_that_agrees_is_not_written_again(tmp_path: Path) -> None:
    older = PlanFile(target="data.py", loader=LoaderChange(fuse="exact"))
    assert tuned(tmp_path, Settings(2), older).report.written is None
    assert [path.name for path in tmp_path.iterdir()] == [planfile.NAME]


def test_nothing_is_taken_over_from_a_plan_of_another_target(tmp_path: Path) -> None:
    other = PlanFile(target="other.py", loader=LoaderChange(fuse="close"), cache=OLDER.cache)
    result = tuned(tmp_path, Settings(4), other)
    plan = planfile.read(tmp_path / planfile.NAME)
    assert plan.cache is None and plan.loader is not None and plan.loader.fuse is None
    assert "was one of other.py" in result.report.notes[0] and (tmp_path / BACKUP).exists()


@pytest.mark.parametrize("written", ["./data.py", "{}/data.py"])
def test_a_target_is_the_same_however_its_path_is_written(tmp_path: Path, written: str) -> None:
    """pipefix fix ./data.py and then pipefix tune data.py: the cache and the fused calls were not in the plan any more."""
    tuned(tmp_path, Settings(4), msgspec.structs.replace(OLDER, target=written.format(Path.cwd())))
    assert planfile.read(tmp_path / planfile.NAME).cache == OLDER.cache


def test_workers_that_were_typed_are_in_the_plan(tmp_path: Path) -> None:
    """tune --workers 2 wrote no plan where two were the best, and the code, which had none, was told to stay as it is."""
    assert not tuned(tmp_path, Settings(2), None, workers=2, ran=False).changed
    assert tuned(tmp_path, Settings(2), None, workers=2).report.changes == {"num_workers": 2}
    plan = planfile.read(tmp_path / planfile.NAME)
    assert plan.loader is not None and plan.loader.num_workers == 2


def test_without_an_older_plan_nothing_lies_beside_it(tmp_path: Path) -> None:
    tuned(tmp_path, Settings(4), None)
    assert [path.name for path in tmp_path.iterdir()] == [planfile.NAME]


def test_what_was_found_is_not_lost_with_a_plan_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(planfile, "write_whole", full)
    with pytest.raises(UnreadableFile, match="No space left on device") as caught:
        tuned(tmp_path, Settings(4), None)
    known: Any = caught.value.known
    assert known.settings.num_workers == 4 and known.report.written is None


def test_trials_read_from_the_cache_that_the_plan_names(tmp_path: Path) -> None:
    data = Lines(tmp_path / "data")
    conversion.convert(data, conversion.recipe_of("lmdb", "source", None), tmp_path / "cache", target="data")
    subject, notes, path = load(DataLoader(data, batch_size=4)), [], tmp_path / planfile.NAME
    plan = PlanFile(cache=CacheChange(path="cache", store="source"))
    cached = _reading_its_cache(subject, plan, path, Path(), notes)
    assert type(cached.dataset).__name__ == "CachedDataset" and "Trials read from cache" in notes[0]
    missing = PlanFile(cache=CacheChange(path="nowhere", store="source"))
    assert _reading_its_cache(subject, missing, path, Path(), notes) is subject and "without the cache" in notes[1]


@pytest.mark.parametrize(("chosen", "workers"), [(Settings(2), 8), (Settings(4), 4)])
def test_what_a_loader_follows_already_stays_in_its_plan(tmp_path: Path, chosen: Settings, workers: int) -> None:
    """With plan= in the code, "keep 8 workers" took the 8 out of the plan; and its cache, where fix knew another name."""
    result = tuned(tmp_path, chosen, msgspec.structs.replace(OLDER, target="<DataLoader object>"), follows=True)
    plan = planfile.read(tmp_path / planfile.NAME)
    assert plan.loader is not None and plan.cache == OLDER.cache
    assert (plan.loader.num_workers, plan.loader.fuse) == (workers, "close")
    assert not any("no longer" in note or "nothing of it" in note for note in result.report.notes)
