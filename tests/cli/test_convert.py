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


def test_rows_of_a_dataset_with_random_transforms_are_refused_with_what_to_type(target, capsys):
    from PIL import Image

    for index in range(5):
        Image.linear_gradient("L").rotate(37).resize((20, 16)).convert("RGB").save(f"{index}.png")
    assert main(["convert", target, "--to", "parquet", "--workers", "0"]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "rows hold whole samples, and random transforms would be frozen into them" in said
    assert "--to lmdb --store sample" in said


def test_a_quality_that_nothing_is_encoded_with_is_refused(target, capsys):
    assert main(["convert", target, "--to", "lmdb", "--store", "decoded", "--quality", "30"]) == 2
    assert "--quality 30 does not fit --store decoded, which encodes no pictures" in capsys.readouterr().err


def test_the_default_place_and_json(target, capsys):
    for to, store in (("lmdb", "source"), ("parquet", "rows")):
        assert main(["convert", target, "--to", to, "--workers", "0", "--json", "-q"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["manifest"]["length"] == 5 and Path(f"cache-{store}/manifest.json").exists()


STREAM = """
import itertools
from torch.utils.data import IterableDataset

class Numbers(IterableDataset):
    def __iter__(self):
        return ((number, f"n{number}") for number in itertools.count())

stream = Numbers()
"""


def test_the_beginning_of_a_stream(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("endless_numbers.py").write_text(STREAM)
    asked = ["convert", "endless_numbers.py", "--to", "lmdb", "--store", "sample", "--out", "made"]
    assert main([*asked, "--dry-run"]) == 2
    assert "--limit N" in capsys.readouterr().err
    assert main([*asked, "--limit", "70"]) == 0
    assert "made: 70 records, sample in lmdb" in capsys.readouterr().out.replace("\n", " ")
    assert main([*asked[:4], "--store", "source", "--limit", "70"]) == 2
    assert "--store sample" in capsys.readouterr().err
    sys.modules.pop("endless_numbers", None)


def test_what_goes_past_a_source_cache_is_told(target, capsys):
    code = Path("pictures_to_convert.py").read_text()
    Path("table.bin").write_bytes(bytes(5 * 30_000))
    code = code.replace("import Path\n", "import Path\nimport numpy\n")
    code = code.replace(
        "transform = None\n", 'table = numpy.memmap("table.bin", mode="r", shape=(5, 30_000))\n    transform = None\n'
    )
    Path("pictures_to_convert.py").write_text(code.replace(", index\n", ", self.table[index].sum()\n"))
    assert main(["convert", target, "--to", "lmdb", "--workers", "0"]) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "A sample also reads about 30.0 kB in ways that a source cache cannot answer" in said


def test_a_forecast_writes_nothing(target, capsys):
    assert main(["convert", target, "--to", "lmdb", "--store", "resized", "--size", "8", "--workers", "0", "--dry-run"]) == 0
    assert "5 samples would take" in capsys.readouterr().out.replace("\n", " ")
    assert sorted(path.suffix for path in Path().iterdir() if path.name != "__pycache__") == [".png"] * 5 + [".py"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["convert", "{target}", "--to", "lmdb", "--store", "rows"], 2, "Store rows as --to parquet --store rows"),
        (["convert", "{target}", "--to", "lmdb", "--size", "256"], 2, "--size 256 does not fit --store source"),
        (["convert", "{target}", "--to", "lmdb", "--limit", "3"], 2, "--limit is for streams, and this dataset has 5 samples"),
        (["convert", "{target}", "--to", "lmdb", "--limit", "0"], 2, "--limit"),
        (["convert", "{target}", "--to", "lmdb", "--update", "--dry-run"], 2, "--dry-run: not allowed with argument --update"),
        (["convert", "{target}", "--to", "lmdb", "--out", "."], 2, "holds other things"),
        (["convert", "{target}", "--to", "lmdb", "--out", "hdfs://a/b", "--dry-run"], 2, "is not in a store that is known"),
    ],
)
def test_mistakes_are_told_in_sentences(target, capsys, arguments, code, said):
    assert main([word.format(target=target) for word in arguments]) == code
    notes = capsys.readouterr().err
    assert said in notes and "Traceback" not in notes
