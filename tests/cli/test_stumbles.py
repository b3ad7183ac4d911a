"""What newcomers stumble over: each is answered by what happened, the value found, and what to type next, never by a traceback."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest

from pipefix.cli import console, deliver, destination, main, probe
from pipefix.cli.main import main as pipefix
from pipefix.vocabulary import versioned
from tests.cli.conftest import Library

ROOT = Path(__file__).resolve().parents[2]
RUN = str(ROOT / "fixtures" / "runs" / "decode-bound-workers.json")
DATA = """
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __init__(self, root="."): self.root = root
    def __len__(self): return LENGTH
    def __getitem__(self, index): return float(index)

loader = DataLoader(Numbers(), batch_size=4)
"""


@pytest.fixture(autouse=True)
def targets_are_there() -> None:
    """Here names of files are the subject, unlike in the room's other tests."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that people name by mistake."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.py").write_text(DATA.replace("LENGTH", "64"))
    (tmp_path / "empty.py").write_text(DATA.replace("LENGTH", "0"))
    (tmp_path / "nothing.py").write_text("x = 1\n")
    (tmp_path / "typo.py").write_text("def loader(:\n")
    (tmp_path / "raises.py").write_text("raise RuntimeError('no disk')\n")
    (tmp_path / "asks.py").write_text("import argparse\nargparse.ArgumentParser().error('--data is missing')\n")
    (tmp_path / "imports.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "notes.txt").write_text("Hello\n")
    (tmp_path / "book.ipynb").write_text("{}")
    (tmp_path / "other.json").write_text('{"format": "something/1"}')
    (tmp_path / "newer.json").write_text('{"format": "pipefix.run/9"}')
    (tmp_path / "cut.json").write_text(Path(RUN).read_text(encoding="utf-8")[:500])
    (tmp_path / "a folder").mkdir()
    return tmp_path


STUMBLES = [
    # flags
    ("prob data.py", 2, "Did you mean: pipefix probe?"),
    ("help probee", 2, "Did you mean: pipefix probe?"),
    ("probe data.py --bugdet 5", 2, "Did you mean --budget?"),
    ("doctor -m package.train", 2, "pipefix run --probe -m MODULE"),
    ("swap data.py --too kornia", 2, "Did you mean --to?"),  # and not: --to is required
    ("convert data.py -to lmdb", 2, "Did you mean --to?"),
    ("doctor -dash.py", 2, "there is no flag -dash.py."),
    ("probe data.py -budget 5", 2, "there is no flag -budget"),
    ("probe data.py --budjet=5", 2, "Did you mean --budget?"),
    ("probe data.py --rec 5MB", 2, "there is no flag --rec."),  # an abbreviation would mean another flag when one is added
    ("probe data.py --record", 2, "Did you mean --recording-budget?"),
    ("probe data.py --zzzz", 2, "See what it takes with: pipefix probe --help"),
    ("probe data.py --lr 0.1", 2, "A program's own arguments come after --: pipefix probe train.py -- --lr ..."),
    ("fix train.py --epochs 3", 2, "come after --: pipefix fix train.py -- --epochs ... Did you mean"),
    ("show run.json --htm", 2, "Did you mean --html?"),
    ("--versoin", 2, "Did you mean --version?"),
    ("watch.py --epochs 3", 2, "Did you mean: pipefix run watch.py?"),  # and not: pipefix watch
    ("qqq", 2, "Its commands are compare, completion, convert"),
    ("probe", 2, "the following arguments are required: TARGET"),
    ("probe data.py other.py", 2, "'other.py' is one argument too many"),
    ("probe data.py --batch-size 0", 2, "'0' is not a whole number above 0"),
    ("probe data.py --quick --budget 9", 2, "not allowed with argument --quick"),
    ("probe data.py --step-ms 5 --target-rate 9", 2, "not allowed with argument --step-ms"),
    ("probe data.py --fail-on slow", 2, "invalid choice: 'slow'"),
    ("probe data.py:Numbers --arg root", 2, "--arg 'root' is not NAME=VALUE."),
    ("probe data.py --color blue", 2, "invalid choice: 'blue'"),
    ("tune data.py --max-cores 4/s", 2, "'4/s' is not a number of CPU cores; write 4 or 2.5"),
    ("convert data.py", 2, "the following arguments are required: --to"),
    ("convert data.py --to hdf5", 2, "invalid choice: 'hdf5'"),
    ("swap data.py", 2, "the following arguments are required: --to"),
    ("fix", 2, "there is no TARGET to fix"),
    ("fix data.py --only magic", 2, "There is no remedy 'magic'."),
    ("fix data.py --undo", 2, "--undo takes a step back in a folder, and needs no target ('data.py' was given)"),
    ("fix --undo --only workers", 2, "--undo takes a step back in a folder, and needs no --only"),
    ("fix --undo --dry-run", 2, "--undo takes a step back in a folder, and needs no --dry-run"),
    ("compare other.json", 2, "the following arguments are required: AFTER"),
    (f"compare {RUN} {RUN} --max-regression 0.05", 2, "'0.05' could mean 0.05% or 5%; write 5% or 0.05%"),
    (f"compare {RUN} {RUN} --max-regression -5%", 2, "'-5%' is not between 0% and 100%; write 5%"),
    ("probe data.py --budget -90s", 2, "'-90s' is not above zero"),
    ("run --seconds -90s data.py", 2, "'-90s' is not above zero"),
    ("completion tcsh", 2, "invalid choice: 'tcsh'"),
    ("PROBE data.py", 2, "Did you mean: pipefix probe?"),
    ("--color=blue doctor", 2, "invalid choice: 'blue'"),
    ("--quiet doctor", 2, "pipefix doctor: there is no flag --quiet."),
    ("completion BASH", 2, "Did you mean bash?"),
    ("convert data.py --to LMDB", 2, "Did you mean lmdb?"),
    ("probe data.py --fail-on input_bound", 2, "Did you mean input-bound?"),
    ("probe data.py --budget 60 s", 2, "A number and its unit are one word"),
    ("probe data.py --recording-budget 1,5GB", 2, "'1,5GB' has a comma in it; write 1.5GB"),
    ("probe data.py --arg root=a -- --epochs 3", 2, "--arg root=a: there is no class or function that TARGET names"),
    ("probe data.py:Numbers --arg root=a --arg root=b", 2, "--arg root is given twice"),
    ("run", 2, "No program was named."),
    ("run --probe 20 data.py", 2, "pipefix run --probe=20 data.py"),
    # names
    ("probe train.py", 3, "There is no file 'train.py'."),
    ("probe dta.py:loader", 3, "Did you mean data.py?"),
    ("probe data.pyy", 3, "Did you mean data.py?"),
    ("run data", 2, "Did you mean: pipefix run data.py?"),
    ("run -m", 2, "No program was named."),
    ("probe src/train.py", 3, "There is no file 'src/train.py'."),
    ("probe ", 3, "TARGET is an empty text."),
    ("probe data", 3, "Did you mean data.py?"),
    ("probe data.py::loader", 3, "Did you mean data.py:loader?"),
    ("probe s3://bucket/train", 3, "is an address, and a target lies on this machine"),
    ("probe data.py:Numbers --arg rot=.", 3, "data.py:Numbers takes no argument 'rot'.\n  Its arguments are (root='.')."),
    ("run train.py", 2, "There is no file train.py."),
    ("probe notes.txt", 3, "its name must end in .py"),
    (
        "probe book.ipynb",
        3,
        "its name must end in .py.\n  In the notebook: pipefix.probe(loader). Or make a program of it: jupyter",
    ),
    ("run book.ipynb", 2, "In the notebook: pipefix.probe(loader)."),
    ("run --epochs 3 data.py", 2, "Flags of the program's own come after it: pipefix run train.py --epochs ..."),
    ("probe asks.py", 3, "or give the program its arguments: pipefix run --probe FILE.py ARGUMENTS"),
    ("probe data.py:laoder", 3, "It defines: data.py:loader"),
    ("probe absent_package.data:loader", 3, "absent_package"),
    ("probe nothing.py", 3, "'nothing.py' defines no Dataset, no DataLoader"),
    ("doctor nothing.py", 3, "is looked at by: pipefix run --probe nothing.py"),
    ("probe typo.py", 3, "SyntaxError"),
    ("probe raises.py", 3, "RuntimeError: no disk"),
    ("probe imports.py", 3, "a_module_that_is_not_there"),
    ("probe empty.py", 3, "is empty: its length is 0"),
    ("convert empty.py --to lmdb --out cache", 3, "Check the path and the filters it was built with."),
    ("verify nowhere", 4, "There is no folder nowhere."),
    ("verify data.py", 4, "data.py is a file, and a cache is a folder."),
    ("verify .", 4, "is not a pipefix cache"),
    ("log nowhere", 2, "There is no folder 'nowhere'."),
    # files
    ("show absent.json", 4, "The run file absent.json could not be read"),
    ("show other.json", 4, "other.json"),
    ("show newer.json", 4, "Upgrade with: pip install --upgrade pipefix"),
    ("show cut.json", 4, "cut.json"),
    ("show notes.txt", 4, "notes.txt"),
    (f"compare {RUN} absent.json", 4, "absent.json"),
    ("watch absent.jsonl --once", 4, "absent.jsonl"),
    ("watch 99999 --once", 2, "99999 is neither a file nor a port of this machine (1 to 65535)"),
    ("watch ftp://host/watch.jsonl --once", 2, "ftp://host/watch.jsonl cannot be followed"),
    ("probe data.py --html absent/report.html", 2, "mkdir -p"),
    ("probe data.py --out .", 2, "is a directory, not a file"),
    ("probe data.py --out data.py", 2, "it will not be replaced"),
    ("probe data.py --out same --html same", 2, "name the same file, same"),
    ("fix --undo --out nowhere", 2, "There is nothing to take back in"),
]


@pytest.mark.parametrize(("words", "code", "said"), STUMBLES, ids=[words for words, _, _ in STUMBLES])
def test_it_is_answered(words: str, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pipefix(words.split(" ")) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    *_, what, advice = told.err.rstrip("\n").splitlines()
    assert re.match(r"pipefix\b", what) or advice.startswith("  ")
    assert advice.startswith("  ") and len(advice) > 10, "what to type next"
    assert "site-packages" not in told.err and "pipefix/cli" not in told.err, "no frames of ours"


@pytest.mark.parametrize("name", ["with space.py", "größe.py", "数据.py", "it's.py", "-dash.py"])
def test_odd_names_are_names(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / name).write_text((here / "data.py").read_text())
    assert pipefix(["doctor", f"./{name}:loader"]) == 0
    assert pipefix(["doctor", f"./{name}:absent"]) == 3
    assert f"{name}:loader" in capsys.readouterr().err


class Closed(StringIO):
    """A reader that went away."""

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize(
    "words",
    [["show", RUN], ["show", RUN, "--json"], ["compare", RUN, RUN], ["doctor"], ["log"], ["completion", "bash"], ["--help"]],
)
def test_a_pipe_that_is_closed_early(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout", Closed())
    assert pipefix(words) == 0
    assert capsys.readouterr().err == ""


def test_files_are_written_where_names_have_spaces_and_letters_of_any_script(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here / "größe und 数据"
    folder.mkdir()
    (folder / "run 1.json").write_bytes(Path(RUN).read_bytes())
    assert pipefix(["show", str(folder / "run 1.json"), "--html", str(folder / "it's.html")]) == 0
    assert pipefix(["compare", str(folder / "run 1.json"), RUN, "--html", str(folder / "two runs.html")]) == 0
    assert {path.name for path in folder.iterdir()} == {"run 1.json", "it's.html", "two runs.html"}


@pytest.mark.parametrize("run", sorted((ROOT / "fixtures" / "runs").glob("*.json")), ids=lambda path: path.stem)
def test_a_card_is_read_at_one_glance(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """15 lines; one more where the audit has two warnings."""
    monkeypatch.setenv("COLUMNS", "100")
    assert pipefix(["show", str(run)]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 16


def test_a_folder_without_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert pipefix(["probe", "a folder"]) == 3
    assert "It needs one folder a class with images inside" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "variables", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_in_a_pipe(
    words: list[str], variables: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    try:
        assert pipefix(["show", RUN, *words]) == 0
    finally:
        console.ask_color("auto")
    assert ("\x1b[" in capsys.readouterr().out) is coloured


def test_a_folder_that_may_not_be_written_to(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert pipefix(["show", RUN, "--html", "report.html"]) == 4
    told = capsys.readouterr().err
    assert "nothing can be written in" in told
    assert "Choose a directory that you may write to" in told


MOMENTS = [
    (main, "find"), (main, "parse"), (main, "named"), (destination, "check"), (console, "stdout_reserved"), (deliver, "Progress"),
    (probe, "used"), (deliver, "deliver"), (versioned, "write"), (console, "show"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "name"), MOMENTS, ids=[f"{place.__name__}.{name}" for place, name in MOMENTS])
def test_ctrl_c_at_ten_moments(
    place: object, name: str, library: Library, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, name, interrupted)
    assert pipefix(["probe", "data.py", "--out", "run.json"]) == 130
    told = capsys.readouterr().err
    assert "Interrupted" in told
    assert "Traceback" not in told
