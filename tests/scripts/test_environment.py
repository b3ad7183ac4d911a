"""The set-up takes up what was interrupted or broken, and two at once do not meet. Nothing is installed: pip is played."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.doubles import scripts


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
    module = scripts.script("environment.py")
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


def test_an_interrupted_set_up_is_taken_up(script: ModuleType, played: Played) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    played.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        script.main()
    played.meanwhile = lambda: None
    script.main()
    assert (played.created, len(played.installed)) == (1, 2)


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


def test_two_at_once_install_once(
    script: ModuleType, played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits, say = threading.Event(), script.say

    def told_that_it_waits(sentence: str) -> None:
        say(sentence)
        if sentence.startswith("Another set-up"):
            waits.set()

    monkeypatch.setattr(script, "say", told_that_it_waits)
    played.meanwhile = lambda: bool(waits.wait())
    both = [threading.Thread(target=script.main) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(played.installed) == 1
    told = capsys.readouterr()
    assert told.err.count("Another set-up of this environment is under way; waiting for it.") == 1
    assert len(told.out.splitlines()) == 2
