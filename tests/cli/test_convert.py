from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pipefix.cli.main import main

CODE = """
from pathlib import Path
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms

class Pictures(Dataset):
    transform = None
    def __init__(self):
        self.paths = sorted(Path(__file__).parent.glob("*.png"))
        self.transform = transforms.Compose([transforms.Resize(8), transforms.RandomCrop(6)])
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index]).convert("RGB")), index

data = Pictures()
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from PIL import Image

    for index in range(5):
        Image.new("RGB", (20, 16), (index * 40, 9, 9)).save(tmp_path / f"{index}.png")
    (tmp_path / "pictures_to_convert.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    yield "pictures_to_convert.py:data"
    sys.modules.pop("pictures_to_convert", None)


def test_it_says_what_was_made_and_how_to_use_it(target, capsys):
    assert main(["convert", target, "--to", "lmdb", "--store", "sample", "--workers", "0", "--out", "made"]) == 0
    said = capsys.readouterr().out
    assert "made: 5 records, sample in lmdb" in said.replace("\n", " ")
    assert "Resize(8) of dataset.transform is stored; RandomCrop((6, 6)) runs live." in said
    assert "dataset = CachedDataset(" in said and "dataset=dataset)" in said
    assert main(["convert", target, "--to", "lmdb", "--store", "sample", "--workers", "0", "--out", "made"]) == 0
    assert "its source is unchanged: nothing was done" in capsys.readouterr().out


def test_the_default_place_and_json(target, capsys):
    assert main(["convert", target, "--to", "parquet", "--workers", "0", "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["manifest"]["length"] == 5 and Path("cache-source/manifest.json").exists()


def test_a_forecast_writes_nothing(target, capsys):
    assert main(["convert", target, "--to", "lmdb", "--store", "resized", "--size", "8", "--workers", "0", "--dry-run"]) == 0
    assert "5 samples would take" in capsys.readouterr().out.replace("\n", " ")
    assert sorted(path.suffix for path in Path().iterdir() if path.name != "__pycache__") == [".png"] * 5 + [".py"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["convert", "{target}"], 2, "--to"),
        (["convert", "{target}", "--to", "tar"], 2, "invalid choice: 'tar'"),
        (["convert", "{target}", "--to", "lmdb", "--store", "rows"], 2, "Store them as --to parquet --store rows"),
        (["convert", "{target}", "--to", "lmdb", "--size", "256"], 2, "--size 256 does not fit --store source"),
        (["convert", "absent.py", "--to", "lmdb"], 3, "There is no file 'absent.py'"),
        (["convert", "{target}", "--to", "lmdb", "--out", "."], 2, "holds other things"),
    ],
)
def test_mistakes_are_told_in_sentences(target, capsys, arguments, code, said):
    assert main([one.format(target=target) for one in arguments]) == code
    notes = capsys.readouterr().err
    assert said in notes and "Traceback" not in notes
