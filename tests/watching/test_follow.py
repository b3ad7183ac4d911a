"""Following a job from outside: by its file, by its endpoint, with and without a baseline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from pipefix.report import runfile
from pipefix.vocabulary.errors import UnreadableFile
from pipefix.watching import baseline as baselines
from pipefix.watching import follow as followed
from pipefix.watching import prometheus
from pipefix.watching.drift import BYTES, Drift
from pipefix.watching.follow import by_job, follow
from pipefix.watching.prometheus import Endpoint
from pipefix.watching.window import Window, encode
from tests.watching.streams import COSTS, Job, Plant


def job(windows: int = 5, plant: Plant | None = None, *, ended: bool = True) -> list[Window]:
    windows_of_job = list(Job(1, windows=windows, plant=plant, quiet=True))
    return [*windows_of_job[:-1], msgspec.structs.replace(windows_of_job[-1], ended=ended)]


def written(path: Path, windows: list[Window]) -> Path:
    path.write_bytes(b"".join(encode(window) for window in windows))
    return path


def numbers(groups: list[list[Window]]) -> list[list[int]]:
    return [[window.number for window in group] for group in groups]


def after(*steps: Callable[[], object]) -> Callable[[float], None]:
    """A sleep during which somebody does the next of these things."""
    left = iter(steps)

    def sleep(_: float) -> None:
        next(left)()

    return sleep


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_finished_job_is_read_whole(tmp_path: Path):
    assert numbers(list(follow(str(written(tmp_path / "watch.jsonl", job(5)))))) == [[1, 2, 3, 4, 5]]


def test_lines_that_come_later_come_later_and_half_ones_wait(tmp_path: Path):
    first, second, third, fourth = map(encode, job(4))
    path = tmp_path / "watch.jsonl"
    path.write_bytes(first)
    steps = after(*(partial(append, path, data) for data in (second[:40], second[40:] + third, fourth)))
    assert numbers(list(follow(str(path), sleep=steps))) == [[1], [2, 3], [4]]


def test_once_does_not_wait(tmp_path: Path):
    path = written(tmp_path / "watch.jsonl", job(3, ended=False))
    assert len(list(follow(str(path), once=True))) == 1


def test_what_the_job_found_is_told_as_it_is(tmp_path: Path):
    drift = Drift()
    windows = [
        msgspec.structs.replace(window, notices=drift.feed(window), drifting=drift.drifting)
        for window in job(60, Plant(30, {"decode": 1.5}))
    ]
    (group,) = follow(str(written(tmp_path / "watch.jsonl", windows)))
    assert group == windows
    assert [notice.stage for window in group for notice in window.notices] == ["decode"]


def test_an_earlier_job_as_the_baseline(tmp_path: Path):
    before = written(tmp_path / "before.jsonl", job(40))
    after = written(tmp_path / "after.jsonl", job(40, Plant(0, {"augment": 1.3})))
    (group,) = follow(str(after), baseline=before)
    (notice,) = [notice for window in group for notice in window.notices]
    assert (notice.kind, notice.stage, notice.against) == ("costlier", "augment", "before.jsonl")
    assert notice.ratio == pytest.approx(1.3, abs=0.06)


def test_a_run_file_as_the_baseline(root: Path, tmp_path: Path):
    run = runfile.read(root / "fixtures" / "runs" / "decode-bound-workers.json")
    baseline = baselines.from_run(run, "run.json")
    costs = {stage.stage: stage.wall_s.value for stage in run.stages if stage.wall_s is not None}
    assert baseline.levels["decode"] == costs["decode"]
    assert baseline.levels["augment"] == costs["augment"]
    assert not {"collate", "ipc", "step"} & baseline.levels.keys()
    assert set(baseline.levels) <= {"storage", "decode", "augment", BYTES}
    assert baselines.read(root / "fixtures" / "runs" / "decode-bound-workers.json").levels == baseline.levels
    runfile.write(run, tmp_path / "run.json")
    assert baselines.read(tmp_path) == baseline, "a folder of pipefix run --probe, as show and compare take it"


def test_the_cold_epoch_of_an_earlier_job_is_left_out():
    cold = [
        msgspec.structs.replace(window, epochs=1, stages={"storage": msgspec.structs.replace(window.stages["storage"], s=1.0)})
        for window in job(10)
    ]
    warm = [msgspec.structs.replace(window, epochs=2) for window in job(10)]
    assert baselines.from_windows([*cold, *warm], "job").levels["storage"] == pytest.approx(COSTS["storage"], rel=0.1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "could not be read"),
        (b"", "is empty"),
        (b'{"format": "pipefix.watch/1", "time": 1, "number": 1, "seconds": 30}\n', "no window with figures"),
    ],
)
def test_baselines_that_are_none(tmp_path: Path, content: bytes | None, says: str):
    path = tmp_path / "base"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableFile, match=says):
        baselines.read(path)


def test_a_run_without_costs_is_no_baseline(root: Path):
    with pytest.raises(UnreadableFile, match="holds no costs of stages"):
        baselines.read(root / "fixtures" / "runs" / "minimal.json")


def test_an_empty_file_holds_no_window(tmp_path: Path):
    (tmp_path / "watch.jsonl").touch()
    with pytest.raises(UnreadableFile, match="holds no window yet"):
        list(follow(str(tmp_path / "watch.jsonl"), once=True))


def test_an_endpoint_is_followed_until_it_is_gone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prometheus, "PATIENCE", 60.0)  # a busy machine may hold up who asks
    monkeypatch.setattr(followed, "_TIMEOUT", 60.0)
    windows = job(3, ended=False)
    endpoint = Endpoint(0)
    endpoint.write(windows[0])
    steps = after(lambda: None, lambda: endpoint.write(windows[1]), lambda: endpoint.write(windows[2]), endpoint.close)
    groups = list(follow(endpoint.url, sleep=steps))
    assert numbers(groups) == [[1], [2], [3]]
    assert groups[1][0].batches == windows[1].batches
    assert groups[1][0].stages == windows[1].stages


def test_a_proxy_is_not_asked_about_this_machine(monkeypatch: pytest.MonkeyPatch):
    """Where http_proxy is set, as on many clusters, `pipefix watch 9400` did not find the job."""
    for name in ("no_proxy", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    endpoint = Endpoint("127.0.0.1:0")
    try:
        endpoint.write(job(1)[0])
        for url in (endpoint.url, f"{endpoint.url}/", endpoint.url.replace("/metrics", "/window")):
            assert numbers(list(follow(url, once=True))) == [[1]]
    finally:
        endpoint.close()


def test_an_address_where_nobody_listens():
    with pytest.raises(UnreadableFile, match="does not answer"):
        list(follow("http://127.0.0.1:9/metrics", once=True))
    with pytest.raises(UnreadableFile, match=r"http://127\.0\.0\.1:9/metrics does not answer"):
        list(follow("9", once=True))


def test_a_job_that_was_killed_is_not_waited_for_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    slept: list[float] = []
    path = written(tmp_path / "watch.jsonl", job(3, ended=False))
    (group,) = follow(str(path), every=20.0, sleep=slept.append)
    assert [window.number for window in group] == [1, 2, 3]
    assert sum(slept) > max(followed.SILENT_SECONDS, followed.SILENT_WINDOWS * group[-1].seconds)
    assert f"Nothing was written to {path} for 320 s: the job has ended without its last window." in caplog.text


def test_a_file_that_is_cut_is_read_from_its_new_beginning(tmp_path: Path):
    """What logrotate's copytruncate does."""
    windows = job(4)
    path = written(tmp_path / "watch.jsonl", windows[:2])
    steps = after(lambda: path.write_bytes(b""), lambda: path.write_bytes(b"".join(map(encode, windows[2:]))))
    assert numbers(list(follow(str(path), sleep=steps))) == [[1, 2], [3, 4]]


def test_a_file_that_is_moved_is_read_to_its_end_and_then_the_new_one(tmp_path: Path):
    windows = job(4)
    path = written(tmp_path / "watch.jsonl", windows[:1])

    def moved() -> None:
        append(path, encode(windows[1]))
        path.rename(tmp_path / "watch.1.jsonl")
        written(path, windows[2:])

    assert numbers(list(follow(str(path), sleep=after(moved)))) == [[1], [2, 3, 4]]


def test_a_file_whose_job_has_not_begun_is_waited_for(tmp_path: Path):
    path, told = tmp_path / "watch.jsonl", list[str]()
    steps = after(lambda: None, lambda: path.touch(), lambda: written(path, job(2)))
    assert numbers(list(follow(str(path), sleep=steps, say=told.append))) == [[1, 2]]
    assert told == [
        f"{path} is not there: waiting up to 300 s for a job to write it. Ctrl-C ends.",
        f"{path} holds no window yet: waiting for the job to write one. Ctrl-C ends.",
    ]


def test_it_is_not_waited_for_for_ever_nor_at_once_nor_without_a_folder(tmp_path: Path):
    slept: list[float] = []
    with pytest.raises(UnreadableFile, match="No such file"):
        list(follow(str(tmp_path / "watch.jsonl"), every=20, sleep=slept.append))
    assert sum(slept) == followed.SILENT_SECONDS
    for absent, once in (("watch.jsonl", True), ("absent/watch.jsonl", False)):
        with pytest.raises(UnreadableFile, match="No such file"):
            list(follow(str(tmp_path / absent), once=once, sleep=slept.append))
    assert sum(slept) == followed.SILENT_SECONDS


REFUSED = ConnectionRefusedError(111, "Connection refused")


def test_an_address_is_waited_for_too(monkeypatch: pytest.MonkeyPatch):
    told = list[str]()
    monkeypatch.setattr(followed, "_asked", Mock(side_effect=[REFUSED, b"", *map(encode, job(2))]))
    assert numbers(list(follow("9400", sleep=lambda _: None, say=told.append))) == [[1], [2]]
    assert [line.partition(":")[0] for line in told] == ["Nobody serves http", "The job at http"]


def test_an_endpoint_that_once_gives_no_answer_has_not_ended(monkeypatch: pytest.MonkeyPatch):
    first, second = map(encode, job(2, ended=False))
    late = TimeoutError("timed out")
    for answers, seen, end in (
        ([first, late, late, second, REFUSED], [[1], [2]], "(Connection refused): the job has ended."),
        ([first, late, late, late], [[1]], "(timed out): the job hangs, or its machine is gone."),
    ):
        told = list[str]()
        monkeypatch.setattr(followed, "_asked", Mock(side_effect=answers))
        assert numbers(list(follow("9400", sleep=lambda _: None, say=told.append))) == seen
        assert told == [f"http://127.0.0.1:9400/metrics does not answer any more {end}"]


def test_an_endpoint_without_a_window_is_told_as_that(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(followed, "_asked", lambda url: b"")
    with pytest.raises(UnreadableFile, match="tells no window yet"):
        list(follow("9400", once=True))


def test_half_a_line_of_a_full_disk_is_passed_over(tmp_path: Path):
    windows, told = job(3), list[str]()
    path = tmp_path / "watch.jsonl"
    for place, seen in ((1, [1, 3]), (0, [2, 3])):
        told.clear()
        lines = [encode(window)[: 50 if number == place else None].rstrip() for number, window in enumerate(windows)]
        path.write_bytes(b"\n".join([*lines, b""]))
        assert numbers(list(follow(str(path), say=told.append))) == [seen]
    (line,) = told
    assert line.startswith(f"A line is passed over: {path} is not what pipefix.watch writes")
    assert baselines.read(path).levels["decode"] > 0


def test_windows_are_told_apart_by_the_job_that_wrote_them():
    first, second = job(3), job(2)
    assert list(map(len, by_job([*first, *second], None))) == [3, 2]
    assert list(map(len, by_job(second, first[-1]))) == [0, 2]
    assert list(map(len, by_job(first[2:], first[1]))) == [1]


@pytest.mark.parametrize("source", ["9400", ":9400", "127.0.0.1:9400", "node12:9400"])
def test_a_host_and_its_port_are_an_address(source: str):
    """`pipefix watch localhost:9400` waited five minutes for a file of that name."""
    host = source.rpartition(":")[0] or "127.0.0.1"
    assert followed._address(source) == f"http://{host}:9400/metrics"
