"""A target's file is imported as Python would run it: its neighbours, its package, its name, its arguments."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from pipefix.subject.load import load
from pipefix.vocabulary.errors import TargetError
from tests.subject.conftest import Write


def test_neighbours_of_a_file_that_bears_a_taken_name(write: Write) -> None:
    """The folder comes last on the path, so that ``json`` stays the library for everybody else."""
    write("beside_that.py", "COUNT = 5", bare=True)
    path = write("json.py", "import beside_that\ndata = Numbers(beside_that.COUNT)")
    assert load(path).settings.length == 5
    import json

    assert json.loads("[1]") == [1]
    assert sys.path[0] != str(path.parent)


@pytest.mark.parametrize("name", ["json.py", "torch.py"])
def test_a_name_that_hides_a_library_stays_importable_by_its_folder(write: Write, name: str, preloaded: str) -> None:
    """A spawned worker imports the file by the name of the class's module: it must find it, and not the library."""
    path = write(f"project/{name}", "data = Numbers()")
    subject = load(path)
    kind = type(subject.dataset)
    assert kind.__module__ == f"project.{path.stem}"
    pickled = pickle.dumps(subject.dataset).hex()
    code = f"import pickle, sys; sys.path[:] = {sys.path!r}; print(pickle.loads(bytes.fromhex({pickled!r})).count)"
    done = subprocess.run([*preloaded.split(), "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "8", done.stderr


@pytest.mark.parametrize("name", ["my données.py", "dotted.name.py", "1st.py"])
def test_names_that_are_no_identifiers(write: Write, name: str) -> None:
    assert load(write(name, "data = Numbers()")).settings.length == 8


def test_relative_imports(write: Write) -> None:
    files = {"__init__": "", "sizes": "COUNT = 3", "data/__init__": "", "data/near": "EXTRA = 1"}
    for name, text in files.items():
        write(f"shop/{name}.py", text, bare=True)
    path = write("shop/data/train.py", "from ..sizes import COUNT\nfrom .near import EXTRA\ndata = Numbers(COUNT + EXTRA)")
    subject = load(path)
    assert subject.settings.length == 4
    assert type(subject.dataset).__module__ == "shop.data.train"


def test_relative_imports_without_a_package_file(write: Write) -> None:
    write("shelf/sizes.py", "COUNT = 3", bare=True)
    assert load(write("shelf/train.py", "from .sizes import COUNT\ndata = Numbers(COUNT)")).settings.length == 3


def test_a_guarded_main_does_not_run(write: Write) -> None:
    path = write("train.py", "data = Numbers()\nif __name__ == '__main__':\n    raise SystemExit('ran')")
    assert load(path).settings.length == 8


def test_files_are_found_from_the_working_directory(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "count.txt").write_text("6")
    path = write("train.py", "data = Numbers(int(open('count.txt').read()))")
    monkeypatch.chdir(tmp_path)
    assert load(path.name).settings.length == 6
    monkeypatch.chdir("/")
    with pytest.raises(TargetError, match=r"FileNotFoundError: .*count\.txt"):
        load(path)


def test_a_file_is_read_anew_each_time(write: Write) -> None:
    path = write("train.py", "data = Numbers(3)")
    assert load(path).settings.length == 3
    path.write_text(path.read_text() + "\ndata = Numbers(45)\n")
    assert load(path).settings.length == 45


# -- what goes wrong ----------------------------------------------------------------------------------------------------


def test_an_error_is_shown_with_the_users_frames_only(write: Write) -> None:
    path = write("train.py", "def broken():\n    return 1 / 0\ndata = Numbers(broken())")
    with pytest.raises(TargetError, match="raised ZeroDivisionError: division by zero") as raised:
        load(path)
    shown = raised.value.user_traceback or ""
    assert "in broken" in shown and "return 1 / 0" in shown
    assert "importlib" not in shown and "pipefix/subject" not in shown
    assert "python FILE.py" in raised.value.advice
    assert raised.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "message", "advice", "shown"),
    [
        ("try:\n    {}['cause']\nexcept KeyError as error:\n    raise RuntimeError('what came of it') from error",
         "what came of it", "", ["KeyError: 'cause'", "what came of it"]),
        ("data = Numbers(", "SyntaxError", "", ["line 1"]),
        ("import nosuchpackage.inner", "No module named 'nosuchpackage'", "Install 'nosuchpackage' into this Python", []),
        ("raise SystemExit(3)", "raised SystemExit", "__main__", []),
        ("import argparse\nargparse.ArgumentParser().parse_args(['--what'])", "raised SystemExit", "__main__", []),
        ("class Odd(Exception):\n    def __str__(self):\n        raise ValueError\nraise Odd", "raised Odd", "", []),
    ],
    ids=["an error with a cause", "syntax", "a package that is not installed", "an end of the program", "arguments that it minds",
         "an error whose message cannot be read"],
)  # fmt: skip
def test_what_a_file_does_wrong_is_told(write: Write, text: str, message: str, advice: str, shown: list[str]) -> None:
    with pytest.raises(TargetError, match=message) as raised:
        load(write("train.py", text, bare=True))
    assert advice in raised.value.advice
    assert all(words in (raised.value.user_traceback or "") for words in shown)


def test_an_interrupt_stays_one(write: Write) -> None:
    with pytest.raises(KeyboardInterrupt):
        load(write("train.py", "raise KeyboardInterrupt"))


def test_a_failed_import_leaves_no_module_behind(write: Write) -> None:
    with pytest.raises(TargetError):
        load(write("halfway_there.py", "raise ValueError"))
    assert "halfway_there" not in sys.modules


def test_a_file_that_is_no_python(write: Write) -> None:
    with pytest.raises(TargetError, match=r"must end in \.py"):
        load(write("notebook.ipynb", "{}", bare=True))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(write: Write) -> None:
    path = write("train.py", "data = Numbers()")
    path.chmod(0)
    with pytest.raises(TargetError, match="cannot be read"):
        load(path)
