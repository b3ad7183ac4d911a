"""The set-up: installs once, takes up what was interrupted, and two at once do not meet. Nothing is installed: pip is played."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "environment.py"


class Played:
    """Stands where ``venv`` and ``pip`` would work, and counts what they were asked."""

    def __init__(self, script: ModuleType) -> None:
        self.script = script
        self.created = 0
        self.installed: list[tuple[list[str], bool]] = []
        self.importable = [True]
        """What the checks of the imports will say, in order; the last one stays."""
        self.meanwhile: Callable[[], None] = lambda: None

    def create(self, place: Path) -> None:
        self.created += 1
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        (place / self.script.MADE).touch()

    def install(self, place: Path, extras: list[str], shared: bool) -> None:
        self.installed.append((extras, shared))
        self.meanwhile()

    def imports(self, place: Path, extras: list[str]) -> bool:
        return self.importable.pop(0) if len(self.importable) > 1 else self.importable[0]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    specification = importlib.util.spec_from_file_location("environment_script", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = []\n\n[tool.ruff]\nline-length = 132\n")
    (tmp_path / "constraints.txt").write_text("torch==1\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.delenv("PIPEFIX_ENV_HOME", raising=False)
    monkeypatch.setattr(sys, "argv", ["environment.py"])
    return module


@pytest.fixture
def played(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Played:
    stand_in = Played(script)
    for name in ("create", "install", "imports"):
        monkeypatch.setattr(script, name, getattr(stand_in, name))
    return stand_in


def test_the_first_run_installs_and_the_second_does_not(
    script: ModuleType, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main() == 0
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/.venv/bin/python\n"
    assert "Installing what pipefix stands on" in told.err
    assert script.main() == 0
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/.venv/bin/python\n"
    assert told.err == ""
    assert (played.created, played.installed) == (1, [([], False)])


def test_what_the_tests_need_is_added_to_what_the_demo_needs(
    script: ModuleType, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.main()
    monkeypatch.setattr(sys, "argv", ["environment.py", "--test"])
    script.main()
    monkeypatch.setattr(sys, "argv", ["environment.py"])
    script.main()
    assert played.installed == [([], False), (["test"], False)]
    assert played.created == 1


def test_other_pins_install_again_into_the_same_environment(script: ModuleType, played: Played, tmp_path: Path) -> None:
    script.main()
    (tmp_path / "constraints.txt").write_text("torch==2\n")
    script.main()
    assert (played.created, len(played.installed)) == (1, 2)


def test_settings_of_tools_do_not_count(script: ModuleType, played: Played, tmp_path: Path) -> None:
    script.main()
    project = tmp_path / "pyproject.toml"
    project.write_text(project.read_text().replace("132", "100"))
    script.main()
    assert len(played.installed) == 1


def test_an_interrupted_set_up_is_taken_up(script: ModuleType, played: Played) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    played.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        script.main()
    played.meanwhile = lambda: None
    script.main()
    assert (played.created, len(played.installed)) == (1, 2)


def test_damage_is_answered_by_starting_afresh(script: ModuleType, played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    played.importable = [False, True]
    assert script.main() == 0
    assert (played.created, len(played.installed)) == (2, 2)
    assert "starting afresh" in capsys.readouterr().err


def test_what_cannot_be_imported_even_afresh_fails_and_leaves_no_stamp(script: ModuleType, played: Played, tmp_path: Path) -> None:
    played.importable = [False]
    with pytest.raises(SystemExit):
        script.main()
    assert not (tmp_path / ".venv" / script.STAMP).exists()


def test_an_environment_of_the_users_own_is_never_removed(
    script: ModuleType, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / ".venv"
    own.mkdir()
    (own / "precious").touch()
    with pytest.raises(SystemExit):
        script.main()
    assert (own / "precious").exists()
    assert f"Remove it: rm -r {own}" in capsys.readouterr().err


def test_a_broken_environment_of_ours_is_made_anew(script: ModuleType, played: Played, tmp_path: Path) -> None:
    script.main()
    (tmp_path / ".venv" / "bin" / "python").unlink()
    script.main()
    assert played.created == 2


def test_a_python_that_was_upgraded_away_is_noticed(script: ModuleType, played: Played, tmp_path: Path) -> None:
    """``bin/python`` still runs, as another version: it does not see what was installed for the former one."""
    script.main()
    (packages,) = (tmp_path / ".venv" / "lib").glob("python3.*/site-packages")
    packages.parent.rename(packages.parent.with_name("python3.0"))
    script.main()
    assert played.created == 2


def test_another_python_of_the_user_changes_nothing(script: ModuleType, played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    script.main()
    monkeypatch.setattr(sys, "executable", "/another/python3")
    monkeypatch.setattr(sys, "version", "3.99.0 (another)")
    script.main()
    assert (played.created, len(played.installed)) == (1, 1)


def test_a_checkout_that_was_moved_installs_itself_again(
    script: ModuleType, played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was installed in place points to where the checkout was."""
    (tmp_path / "here").mkdir()
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).rename(tmp_path / "here" / name)
    monkeypatch.setattr(script, "ROOT", tmp_path / "here")
    script.main()
    (tmp_path / "here").rename(tmp_path / "there")
    monkeypatch.setattr(script, "ROOT", tmp_path / "there")
    script.main()
    assert (played.created, len(played.installed)) == (1, 2)


def test_two_at_once_install_once(
    script: ModuleType, played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits, say = threading.Event(), script.say

    def told_that_it_waits(sentence: str) -> None:
        say(sentence)
        if sentence.startswith("Another set-up"):
            waits.set()

    monkeypatch.setattr(script, "say", told_that_it_waits)
    played.meanwhile = lambda: waits.wait(60)
    both = [threading.Thread(target=script.main) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(played.installed) == 1
    told = capsys.readouterr()
    assert told.err.count("Another set-up of this environment is under way; waiting for it.") == 1
    assert len(told.out.splitlines()) == 2


def test_a_home_outside_the_checkout_is_named_by_what_is_installed(
    script: ModuleType, played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("PIPEFIX_ENV_HOME", str(home))
    script.main()
    first = Path(capsys.readouterr().out.strip())
    assert first == home / script.shared_name(script.pins()) / "bin" / "python"
    assert played.installed == [([], True)]
    (tmp_path / "constraints.txt").write_text("torch==2\n")
    script.main()
    assert Path(capsys.readouterr().out.strip()) != first
    assert first.exists()


def test_homes_that_nobody_used_for_weeks_are_removed(
    script: ModuleType, played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPEFIX_ENV_HOME", str(tmp_path / "home"))
    script.main()
    (old,) = (path for path in (tmp_path / "home").glob("env-*") if path.is_dir())
    month_ago = time.time() - 30 * 86400
    os.utime(old / script.STAMP, (month_ago, month_ago))
    (tmp_path / "constraints.txt").write_text("torch==2\n")
    script.main()
    assert not old.exists()


def test_the_stamp_says_what_is_there(script: ModuleType, played: Played, tmp_path: Path) -> None:
    script.main()
    stamp = json.loads((tmp_path / ".venv" / script.STAMP).read_text())
    assert stamp == {"key": script.pins(), "place": str(tmp_path / ".venv"), "extras": []}


def test_what_pip_says_when_it_fails(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "pip", lambda place: [sys.executable, "-c", "import sys; print('no network'); sys.exit(3)"])
    with pytest.raises(SystemExit) as caught:
        script.install(tmp_path, [], False)
    assert caught.value.code == 1


def test_the_script_runs_on_the_standard_library_alone() -> None:
    done = subprocess.run([sys.executable, "-S", "-I", str(SCRIPT), "--help"], capture_output=True, text=True, check=True)
    assert "PIPEFIX_ENV_HOME" in done.stdout
