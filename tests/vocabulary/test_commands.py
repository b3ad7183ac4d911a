"""Commands that are suggested can be pasted into a shell, whatever the files in them are called."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

import pytest

from pipefix.cli.main import main
from pipefix.report.swap_report import predicted
from pipefix.vocabulary.commands import command, on_target, with_plan
from tests.architecture import house

HOSTILE = "ca che; touch PWNED"
PROGRAMS = (
    r"(?:rm|mv|cp|mkdir|ls|cat|chmod|pip install|pipefix (?:probe|convert|verify|fix|swap|tune|run|show|compare|watch|doctor))"
)
COMMAND = re.compile(rf"(?:^|[\s`(:]){PROGRAMS}\b(?! (?:is|in|fix is)\b)[^.;:`\n]*$")
"""Text that ends within a command."""
TITLES = ("report/fix_report.py", "report/probe_report.py", "report/tune_report.py", "report/swap_report.py")
"""Their first line repeats the command that was given, for people to read: it suggests nothing."""


def unquoted(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines where a value is put into a command as it is."""
    commands = []
    for node in nodes:
        joined = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.left, ast.Constant)
        if joined and COMMAND.search(str(node.left.value)):
            commands.append(node.lineno)
        text = ""
        for piece in node.values if isinstance(node, ast.JoinedStr) else []:
            if isinstance(piece, ast.Constant):
                text += str(piece.value)
            elif COMMAND.search(text) and not _is_plain(piece):
                commands.append(node.lineno)
    return commands


def parsed(code: str) -> Iterable[ast.AST]:
    return ast.walk(ast.parse(code))


def _is_plain(piece: ast.expr) -> bool:
    """A value that `command` wrote, or one that is chosen from words of ours."""
    assert isinstance(piece, ast.FormattedValue)
    value = piece.value
    if isinstance(value, ast.Call):
        return getattr(value.func, "attr", getattr(value.func, "id", "")) in ("command", "quote", "join", "update")
    if isinstance(value, ast.IfExp):
        return all(isinstance(end, ast.Constant) for end in (value.body, value.orelse))
    return isinstance(value, ast.Name) and value.id in ("extra", "driver", "store", "size")


def test_every_command_is_put_together_by_the_one_function() -> None:
    wrong = []
    for name, module in house.modules().items():
        lines = [] if str(module.path).endswith(TITLES) else unquoted(module.nodes)
        wrong += [f"{name}:{line}" for line in lines]
        if name != "pipefix.vocabulary.commands" and module.path.name != "build.py":
            wrong += [f"{name}: shlex is for pipefix.vocabulary.commands"] if "import shlex" in module.text else []
    assert not wrong


def test_the_test_sees_what_it_should() -> None:
    assert unquoted(parsed('f"Remove it: rm -r {folder}"')) == [1]
    assert unquoted(parsed('"Look: ls -l " + str(folder)')) == [1]
    assert not unquoted(parsed("""f"Remove it: {command('rm', '-r', folder)}"; f"{folder} is no cache." """))


def test_words_stay_words() -> None:
    assert command("rm", "-r", Path("/a b"), "; touch x", "$(x)", "new\nline") == "rm -r '/a b' '; touch x' '$(x)' 'new\nline'"
    assert command("rm", "-r", Path("-rf")) == "rm -r ./-rf"
    assert on_target("convert", "a b.py", to="lmdb", size=256) == "pipefix convert 'a b.py' --to lmdb --size 256"
    assert on_target("convert", "<DataLoader object>", to="lmdb", size=256) == "pipefix.convert(loader, to='lmdb', size=256)"
    assert "pipefix.probe(loader).save('run.json') measures it" in str(predicted(None, "<DataLoader object>", "kornia"))
    assert with_plan('a" b; x', "data.py") == 'FastLoader(dataset, ..., plan="a\\" b; x")'
    assert with_plan("a b; x", "train.py:14") == "pipefix run --plan 'a b; x' PROGRAM"
    assert with_plan("p", "train.py:14", ["train.py", "--name", "a b"]) == "pipefix run --plan p train.py --name 'a b'"
    assert with_plan("p", "yolo:8", ["yolo", "train"]) == "pipefix run --plan p yolo train", "a script of an installed package"
    assert with_plan("p", "/data:8/train") == with_plan("p", "data.py:train") == 'FastLoader(dataset, ..., plan="p")'
    assert shlex.split(command("pipefix", "verify", HOSTILE)) == ["pipefix", "verify", HOSTILE]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    import shutil

    monkeypatch.chdir(tmp_path)
    shutil.copytree(root / "fixtures" / "caches" / "lmdb-source-v1", tmp_path / HOSTILE)
    (tmp_path / "x.py").write_text("x = [1, 2]\n")
    return Path(HOSTILE)


@pytest.mark.parametrize(
    ("harm", "arguments"),
    [
        ("manifest.json", ["verify", HOSTILE]),
        ("parts/00000.mdb", ["verify", HOSTILE]),
        ("", ["fix", "--undo", "--out", HOSTILE]),
        ("", ["convert", "x.py:x", "--to", "parquet", "--store", "rows", "--out", HOSTILE]),
        ("", ["probe", "x.py", "--out", f"{HOSTILE}/missing/{HOSTILE}"]),
        ("", ["probe", "x.py", "--out", HOSTILE]),
        ("", ["probe", "x.py", "--out", f"{HOSTILE}/parts/00000.mdb"]),
    ],
)
def test_messages_about_a_hostile_path(cache: Path, harm: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if harm:
        data = bytearray((cache / harm).read_bytes())
        data[len(data) // 2] ^= 1
        (cache / harm).write_bytes(data)
    assert main(arguments) != 0
    said = capsys.readouterr()
    advice = " ".join(f"{said.out} . {said.err}".split())
    for match in re.finditer(PROGRAMS + r" [^.]*", advice):
        assert re.search(r"(?<!')ca che; touch PWNED(?!'|/)", match[0]) is None, advice
    assert f"'{HOSTILE}" in advice or f"/{HOSTILE}" in advice
