"""What a project and a shell set, and what counts more."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from pipefix.cli.command import find
from pipefix.cli.parser import parse
from pipefix.vocabulary.errors import BadUsage, UnreadableFile


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command is typed: a folder below that of a pyproject.toml."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pipefix]\nworkers = 3\nquiet = true\n[tool.pipefix.probe]\nbudget = "2m"\nstep-ms = 25\n[tool.other]\nbudget = "x"\n'
    )
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    return tmp_path


def parsed(*words: str) -> Namespace:
    return parse(list(words), find())


def test_a_project_sets_them_for_all_commands_or_for_one(project: Path) -> None:
    probe = parsed("probe", "x.py")
    assert (probe.budget, probe.step_ms, probe.workers, probe.quiet) == (120.0, 25.0, 3, True)
    tune = parsed("tune", "x.py")
    assert (tune.budget, tune.workers, tune.quiet) == (90.0, 3, True)


def test_the_table_of_a_command_is_no_value_of_the_option_of_its_name(project: Path) -> None:
    """`swap --run` took the table of `pipefix run` for the name of a run file."""
    (project / "pyproject.toml").write_text("[tool.pipefix.run]\nseconds = 5\n")
    assert parsed("swap", "x.py", "--to", "kornia").run is None
    assert parsed("run", "x.py").seconds == 5.0


def test_a_run_file_belongs_to_one_call(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPEFIX_RUN", "run.json")
    assert parsed("swap", "x.py", "--to", "kornia").run is None


def test_the_environment_counts_more_and_what_is_typed_most(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPEFIX_BUDGET", "9s")
    assert parsed("probe", "x.py").budget == 9.0
    assert parsed("probe", "x.py", "--budget", "30").budget == 30.0
    monkeypatch.setenv("PIPEFIX_BUDGET", "")
    assert parsed("probe", "x.py").budget == 120.0, "a variable that is set and empty was refused"


def test_what_cannot_stand_beside_what_is_typed_is_left(project: Path) -> None:
    probe = parsed("probe", "x.py", "--quick", "--target-rate", "100")
    assert (probe.budget, probe.step_ms, probe.target_rate) == (20.0, None, 100.0)


def test_what_counts_more_leaves_out_what_cannot_stand_beside_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPEFIX_TARGET_RATE", "100")
    probe = parsed("probe", "x.py")
    assert (probe.budget, probe.step_ms, probe.target_rate) == (120.0, None, 100.0)
    monkeypatch.delenv("PIPEFIX_TARGET_RATE")
    (project / "pyproject.toml").write_text("[tool.pipefix]\nstep-ms = 25\n[tool.pipefix.tune]\ntarget-rate = 50\n")
    tune = parsed("tune", "x.py")
    assert (tune.step_ms, tune.target_rate) == (None, 50.0)


def test_agreement_and_files_are_typed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPEFIX_YES", "1")
    monkeypatch.setenv("PIPEFIX_OUT", "somewhere")
    fix = parsed("fix", "x.py")
    assert (fix.yes, fix.out) == (False, None)


def test_of_a_value_that_does_not_fit_it_is_told_where_it_may_be(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPEFIX_BUDGET", "soon")
    with pytest.raises(BadUsage, match="budget, which was not typed: 'soon' is not a number of seconds") as told:
        parsed("probe", "x.py")
    assert told.value.advice == "Mend it in pyproject.toml, or in the environment (PIPEFIX_BUDGET)."
    monkeypatch.setenv("PIPEFIX_COLOR", "blue")
    with pytest.raises(BadUsage, match="color cannot be 'blue': it is one of auto, always, never"):
        parsed("doctor")


@pytest.mark.parametrize(
    ("text", "said", "advice"),
    [
        ('[tool.pipefix]\nbudjet = "9s"\n', "[tool.pipefix] sets 'budjet', which can be set for no command.", "'budget'"),
        ("[tool.pipefix.probe]\nworker = 3\n", "[tool.pipefix.probe] sets 'worker'", "'workers'"),
        ("[tool.pipefix.fix]\nyes = true\n", "[tool.pipefix.fix] sets 'yes'", "It may set: "),
        ('[tool.pipefix.swap]\nto = "kornia"\n', "[tool.pipefix.swap] sets 'to'", "It may set: "),
    ],
)
def test_a_name_that_no_option_has(text: str, said: str, advice: str, project: Path) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(BadUsage) as caught:
        parsed("probe", "x.py")
    assert said in str(caught.value)
    assert advice in caught.value.advice


@pytest.mark.parametrize(
    "text",
    [
        "[tool.pipefix\n", "[tool.pipefix]\nx = " + "[" * 60_000, "tool = 5 # tool.pipefix", "[tool]\npipefix = 5 # tool.pipefix",
        "[tool]\npipefix = [1] # tool.pipefix", "[tool.pipefix]\nbudget = " + "9" * 6000, "[tool.pipefix]\nlog = 5",
    ],
)  # fmt: skip
def test_a_file_of_any_content_ends_in_a_sentence(text: str, project: Path) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(UnreadableFile, match=r"pyproject\.toml cannot be read"):
        parsed("probe", "x.py")
