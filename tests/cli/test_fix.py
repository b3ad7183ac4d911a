from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import pipefix
from pipefix.api.fix import FixReport, Undone
from pipefix.cli import fix as command
from pipefix.cli.deliver import Progress
from pipefix.cli.main import main
from pipefix.fixes.outcome import Applied, Fixed, Measured, Refused, Sameness
from pipefix.report import fix_report
from pipefix.vocabulary.errors import BadUsage, TargetError, UnreadableFile
from pipefix.vocabulary.quantity import Interval
from tests.cli.conftest import Library

GAIN = Measured(gain=Interval(2.9, 2.7, 3.1), before=Interval(100, 98, 102), after=Interval(290, 280, 300), pairs=6)
KEPT = Applied(
    id="cache-source", title="Cache the source bytes", stage="storage", predicted=Interval(3.0, 2.8, 3.2), measured=GAIN, step=1,
    same=Sameness(kind="equal", sentence="24 samples compared, equal to the last bit", samples=24),
    makes="pipefix-caches/source", disk_bytes=5_000_000, seconds=2.0,
)  # fmt: skip
LEFT = Refused(id="pinning", title="Pin", stage="transfer", why="no gain that can be told from noise", command="pin_memory=True")
FIXED = Fixed(
    target="data.py:loader", folder="out", plan="out/pipefix.plan.toml", outcomes=[KEPT, LEFT], stopped="good enough", total=GAIN,
    same=KEPT.same, length=50_000,
)  # fmt: skip


@pytest.fixture
def fixing(library: Library, a_run) -> Library:
    library.answer = FixReport(FIXED, a_run, a_run, Path("out/pipefix.fix.html"))
    return library


def test_it_says_what_was_kept_what_was_left_and_how_to_use_it(fixing, capsys):
    assert main(["fix", "data.py:loader", "--yes", "--only", "cache-source", "--min-gain", "10%", "--budget", "20", "-q"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2.90x (2.70-3.10) as fast: 100 samples/s -> 290 samples/s, and saves 5.5 min of each epoch." in said
    assert "cache-source: 2.90x (2.70-3.10) measured, 3.00x (2.80-3.20) predicted (95 % of that gain)" in said
    assert "pinning: no gain that can be told from noise" in said and "by hand: pin_memory=True" in said
    assert 'FastLoader(dataset, ..., plan="out/pipefix.plan.toml") ... are the arguments of your DataLoader.' in said
    assert "pipefix fix --undo --out out" in said
    assert "out/pipefix.fix.html" in said
    (target,), options = fixing.asked[0]
    assert target == "data.py:loader" and options["yes"] and options["only"] == "cache-source"
    assert options["min_gain"] == 0.1 and options["budget"] == 20 and options["ask"] is None


def test_what_limits_is_told_where_nothing_was_changed(fixing, a_run, capsys):
    """*Nothing was changed. The probe proposes nothing more* was all that was said of a step that takes 99 % of the time."""
    fixing.answer = FixReport(msgspec.structs.replace(FIXED, plan=None, outcomes=[], total=None), a_run, a_run)
    assert main(["fix", "data.py:loader", "-q"]) == 0
    assert f"VERDICT {' '.join(a_run.verdict.sentence.split())}" in " ".join(capsys.readouterr().out.split())


def test_a_run_that_went_on_from_a_plan_does_not_tell_the_whole_as_its_own():
    """3x by an earlier run and 1.2x by this one was told as "3.6x as fast: 1 step kept, predicted to bring 1.2x"."""
    fixed = msgspec.structs.replace(FIXED, went_on=True, total=msgspec.structs.replace(GAIN, before=Interval(40, 39, 41)))
    told = fix_report.result(fixed)
    assert told.startswith("2.90x (2.70-3.10) as fast as without the plan: 40.0 samples/s -> 290 samples/s, ")
    assert told.endswith(" 1 step kept now, predicted to bring 3.00x together.")
    steps = next(section for section in fix_report.report(fixed).sections if section.title == "From before to after")
    rates = [(bar.cells[0], bar.parts[0].begin, bar.parts[0].end) for bar in steps.blocks[1].bars]
    assert rates[1:3] == [("with the plan that was there", 0.0, 100.0), ("cache-source", 100.0, 290.0)]


def test_plan_and_report_lie_where_it_was_begun(tmp_path, a_run, monkeypatch):
    """A target that goes to a folder of its own (Hydra does) took them there."""
    places = []

    class Session:
        seen = [SimpleNamespace(run=a_run)]

        def __init__(self, subject, consumer, machine, folder, *rest):
            places.append(folder)

        def run(self):
            return FIXED

    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    monkeypatch.setattr("pipefix.api.fix.loaded", lambda *_, **__: os.chdir("outputs") or SimpleNamespace(loader=None))
    monkeypatch.setattr("pipefix.api.fix.consumer_for", lambda *_, **__: None)
    monkeypatch.setattr("pipefix.api.fix.Session", Session)
    report = pipefix.fix("data.py")
    assert places == [tmp_path]
    assert report.page == Path("pipefix.fix.html") and (tmp_path / report.page).exists()
    monkeypatch.chdir(tmp_path)
    assert pipefix.fix("data.py").page == report.page, "its own files are replaced"
    # Ctrl-C in the first probe replaced the probes and the page of an earlier fix by ones without a figure.
    monkeypatch.chdir(tmp_path)
    Session.seen = [SimpleNamespace(run=msgspec.structs.replace(a_run, partial=True, stages=[]))]
    monkeypatch.setattr(Session, "run", lambda self: msgspec.structs.replace(FIXED, interrupted=True, outcomes=[]))
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("pipefix.*")}
    assert pipefix.fix("data.py").page is None
    assert kept == {path.name: path.read_bytes() for path in tmp_path.glob("pipefix.*")}
    # In a later one the last probe had no figure, and the plan names its file as its evidence.
    monkeypatch.chdir(tmp_path)
    Session.seen = [SimpleNamespace(run=a_run), *Session.seen]
    monkeypatch.setattr(Session, "run", lambda self: msgspec.structs.replace(FIXED, interrupted=True, total=None))
    pipefix.fix("data.py")
    monkeypatch.chdir(tmp_path)
    assert pipefix.load("pipefix.after.json").stages


def test_an_interrupted_one_tells_what_holds(fixing, capsys):
    fixing.answer = dataclasses.replace(fixing.answer, fixed=msgspec.structs.replace(FIXED, interrupted=True, total=None))
    assert main(["fix", "data.py", "-q"]) == 130
    streams = capsys.readouterr()
    assert "1 step kept; interrupted before the whole was measured" in streams.out
    assert "the plan holds the steps above and no other" in streams.err
    assert "; pipefix fix --undo --out out takes the last step back." in streams.err, "where the plan lies"


@pytest.mark.parametrize("dry", [True, False])
def test_where_nothing_was_kept_nobody_is_told_to_take_a_step_back(fixing, capsys, dry):
    """It would have been one of an earlier fix."""
    fixed = msgspec.structs.replace(FIXED, interrupted=True, dry=dry, outcomes=[LEFT], total=None)
    fixing.answer = dataclasses.replace(fixing.answer, fixed=fixed)
    assert main(["fix", "data.py", "-q"]) == 130
    said = capsys.readouterr().err
    assert "Interrupted: nothing was changed." in said and "--undo" not in said


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnreadableFile("The report out/pipefix.fix.html could not be written: No space left on device."), 4),
        (TargetError("dataset[3] raised OSError: No space left on device."), 3),
    ],
    ids=["the page", "a later look"],
)
def test_what_is_written_or_looked_at_last_does_not_cost_what_was_kept(fixing, capsys, error, code):
    error.known = fixing.answer

    def full():
        raise error

    fixing.meanwhile = full
    assert main(["fix", "data.py", "-q"]) == code
    streams = capsys.readouterr()
    assert "Kept" in streams.out and "No space left" in streams.err


UNDONE = Undone(folder="out", id="cache-source", step=2, removed=["pipefix-caches/source"], plan="pipefix.plan.toml")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "Step 2 (cache-source) is taken back. Removed: pipefix-caches/source. pipefix.plan.toml holds what",
        ),
        ({"plan": None}, "No plan is left: the loader runs as your code has it."),
        ({"finished": False}, "Step 2 (cache-source) was not in effect: the plan is already what it was before it."),
        ({"finished": False, "step": 0, "id": ""}, "No step was taken back: caches lay there that no plan names"),
        (
            {"kept_as": "pipefix.plan.undone-2.toml"},
            "The plan as it was, with what you edited in it, is kept as pipefix.plan.undone-2.toml.",
        ),
    ],
)
def test_undo_says_what_it_did(library, capsys, changes, said):
    library.answer = msgspec.structs.replace(UNDONE, **changes)
    assert main(["fix", "--undo", "--out", "out"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert library.asked == [((Path("out"),), {})]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pipefix.fix.html", "<!doctype html><html><body>My notes on pipefix</body></html>"),
        ("pipefix.before.json", '{"cited": "pipefix.run/1"}'),
        ("pipefix.after.json", "{}"),
    ],
)
def test_a_file_of_somebody_else_is_not_replaced(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadUsage, match="is not a file that pipefix fix wrote; it will not be replaced"):
        pipefix.fix("data.py", out=tmp_path)
    assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize(
    ("words", "probed", "key", "value"),
    [
        ("data.py", True, "format", "pipefix.run/1"),
        ("data.py", False, "target", FIXED.target),
        ("--undo", False, "removed", UNDONE.removed),
    ],
)
def test_json_is_the_last_probes_run_file_or_else_what_was_done(fixing, a_run, capsys, words, probed, key, value):
    fixing.answer = UNDONE if words == "--undo" else FixReport(FIXED, None, a_run if probed else None)
    assert main(["fix", words, "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)[key] == value


class Terminal:
    def __init__(self, answer: str = "") -> None:
        self.answer, self.said = answer, ""

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer

    def write(self, text: str) -> None:
        self.said += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(("answer", "meant"), [("y\n", True), ("Yes\n", True), ("\n", False), ("n\n", False), ("", False)])
def test_on_a_terminal_somebody_is_asked(monkeypatch, answer, meant):
    stdin, stderr = Terminal(answer), Terminal()
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    progress = Progress()
    cleared = []
    monkeypatch.setattr(progress, "pause", lambda: cleared.append(stderr.said))
    ask = command._asking(progress)
    assert ask is not None and ask("Do it?") is meant
    assert cleared == [""], "the bar is off the terminal before the question is on it"
    assert stderr.said == "Do it? [y/N] "
