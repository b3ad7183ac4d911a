from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path

import pytest

import pipefix
from pipefix.cli.main import main
from tests.cli.test_convert import target  # noqa: F401 - the fixture


@pytest.fixture
def cache(target, capsys) -> Path:  # noqa: F811
    assert main(["convert", target, "--to", "lmdb", "--workers", "0", "--out", "made", "-q"]) == 0
    capsys.readouterr()
    return Path("made")


def test_a_sound_cache(cache, capsys):
    assert main(["verify", "made"]) == 0
    assert "made is sound: source in lmdb, 5 records checked." in capsys.readouterr().out.replace("\n", " ")
    assert main(["verify", "made", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 5


def test_damage_fails_the_command_and_is_mended(cache, capsys):
    path = cache / "parts" / "00000.mdb"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert main(["verify", "made"]) == 1
    told = capsys.readouterr()
    assert "is damaged: 1 part of 1" in told.out.replace("\n", " ") and "--out made --update" in told.err
    sys.modules.pop("pictures_to_convert", None)
    command = next(line for line in told.err.splitlines() if "pipefix convert" in line)
    assert main(shlex.split(command[command.index("pipefix convert") :])[1:]) == 0
    assert "Made in" in capsys.readouterr().out
    assert main(["verify", "made"]) == 0


def test_the_command_that_mends_a_cache_of_smaller_pictures_can_be_typed(target, capsys):  # noqa: F811
    """To tell it ended the command as a bug of ours, for its numbers were no words; and 0.2 is no share that --max-bad takes."""
    asked = ["--to", "lmdb", "--store", "resized", "--out", "made", "--size", "8", "--max-bad", "20%"]
    assert main(["convert", target, *asked, "--workers", "0", "-q"]) == 0
    Path("made/parts/00000.mdb").write_bytes(b"damage")
    sys.modules.pop("pictures_to_convert", None)
    assert main(["verify", "made"]) == 1
    command = next(line for line in capsys.readouterr().err.splitlines() if "pipefix convert" in line)
    typed = shlex.split(command[command.index("pipefix convert") :])[1:]
    assert typed == ["convert", target, *asked, "--update"] and main(typed) == 0 and main(["verify", "made"]) == 0


def test_a_cache_in_a_store_is_not_to_be_updated(cache):
    checked = dataclasses.replace(pipefix.verify("made"), changed=["a.jpg"], changed_count=1, url="s3://bucket/made")
    assert "1 source file changed since: a.jpg. A cache in a store is not changed" in " ".join(str(checked).split())
    assert "--update" not in str(checked)


def test_a_damaged_manifest(cache, capsys):
    manifest = cache / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"samples": 5', '"samples": 6'))
    assert main(["verify", "made"]) == 4
    assert "its digest does not fit" in capsys.readouterr().err


def test_code_that_lies_in_a_cache_is_never_advised_to_be_run(cache, capsys, tmp_path):
    import hashlib

    manifest = cache / "manifest.json"
    (cache / "evil.py").write_text("open('PWNED', 'w')\ndata = [1, 2, 3]\n")
    text = manifest.read_text().replace('"target": "pictures_to_convert.py:data"', '"target": "made/evil.py:data"')
    blank = text[: text.rindex('"digest"')] + '"digest": ""\n}\n'
    manifest.write_text(blank.replace('"digest": ""', f'"digest": "{hashlib.sha256(blank.encode()).hexdigest()}"'))
    (cache / "parts" / "00000.mdb").write_bytes(b"damage")
    assert main(["verify", "made"]) == 1
    told = capsys.readouterr()
    for said in (told.out, told.err):
        assert "pipefix convert TARGET" in " ".join(said.split())
    assert not (tmp_path / "PWNED").exists()
