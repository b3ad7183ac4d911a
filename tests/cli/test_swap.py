from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import v2

from pipefix.api.swap import Swapped
from pipefix.augment.parity import Panel, Parity, PixelError
from pipefix.augment.split import SampleFormat, Split
from pipefix.augment.swap import Swap
from pipefix.augment.transforms import ListedTransform
from pipefix.cli.main import main
from pipefix.report import terminal
from pipefix.report.runfile import GainFigures, RemedyFigures, Run
from pipefix.report.swap_report import PredictedGain, predicted, verdict
from pipefix.subject.subject import Subject
from pipefix.vocabulary.held_transforms import HeldTransforms
from pipefix.vocabulary.quantity import Interval
from tests.cli.conftest import Library

SHADES = (10, 20, 30, 40)
PARITY = Parity(
    "kornia",
    "cpu",
    pixels=[PixelError("HorizontalFlip", 16, 0, 0, 0), PixelError("ColorJitter", 16, 0.2, 1.0, 2.0, "rounded once")],
    whole=PixelError("the whole list", 16, 0.3, 2.0, 9.0),
    sheet=[Panel(*(np.full((2, 2, 3), shade) for shade in SHADES), mean=0.3)],
)
SPLIT = Split(
    "kornia",
    in_dataset=(),
    on_batch=tuple(ListedTransform(transform, None) for transform in (v2.RandomHorizontalFlip(0.5), v2.Identity())),
    reasons=(("RandomResizedCrop", "pictures differ in size"),),
    format_before=SampleFormat((3, 224, 224), "float32"),
    format_after=SampleFormat((3, 224, 224), "uint8"),
)


def swapped(cut: Split = SPLIT, parity: Parity | None = PARITY, worth: PredictedGain | None = None) -> Swapped:
    subject = SimpleNamespace(target="data.py:loader")
    worth = worth or PredictedGain(Interval(1.9, 1.5, 2.4), "")
    return Swapped(Swap(cut, HeldTransforms(("transform",), None, None)), parity, worth, cast(Subject, subject))


def text(result: Swapped, **manner: Any) -> str:
    return "\n".join(terminal.lines(result.document(), **manner))


def test_the_whole_report() -> None:
    said = text(swapped())
    assert (
        "STAYS    On the CPU, in the dataset, before samples are collated:\n         - RandomResizedCrop: pictures differ in size"
        in said
    )
    assert (
        "MOVES    To the batch, as one module on its device:\n         - RandomHorizontalFlip(p=0.5)\n         - Identity()" in said
    )
    assert (
        "crosses to the training process as 151 kB (uint8 3x224x224) instead of 602 kB (float32 3x224x224): 4.00x"
        in said.replace("\n         ", " ")
    )
    assert "GAIN     1.90x (1.50-2.40) the throughput is what the probe predicts." in said
    assert "The same seed gives the same samples both ways, on cpu: 2 transforms" in said
    cells = [line.split() for line in said.splitlines()]
    assert any(row[:1] == ["HorizontalFlip"] and "exact" in row for row in cells)
    assert any(row[:1] == ["ColorJitter"] and row[2:] == ["0.200", "1.00", "2.0", "rounded", "once"] for row in cells)


def test_nothing_to_move_and_nothing_known() -> None:
    cut = Split("dali", (), (), (), SampleFormat(None, "uint8"), SampleFormat(None, "uint8"))
    said = text(swapped(cut, None, PredictedGain(None, "Not predicted.")))
    assert "Nothing can be moved." in said
    assert "DALI begins with the encoded file" in said
    assert "GAIN     Not predicted." in said


def test_the_gain_that_is_told_is_that_of_where_it_moves() -> None:
    """Of --to dali it was the gain of Kornia, which does not decode."""
    remedies = [
        RemedyFigures(
            id=name, stage="augment", title=name, status="proposed", why=f"{name} is why",
            speedup=GainFigures(value=gain, low=gain, high=gain),
        )
        for name, gain in (("augment-gpu", 1.5), ("decode-gpu", 3.0))
    ]  # fmt: skip
    run = Run(target="x", remedies=remedies)
    assert str(predicted(run, "x", "dali")).startswith("3.00x")
    assert str(predicted(run, "x", "kornia")).endswith("is what the probe predicts. augment-gpu is why.")
    assert "It probed another target, x. augment-gpu" in str(predicted(run, "y", "kornia"))


def test_a_difference_is_named() -> None:
    parity = Parity("kornia", "cpu", pixels=[PixelError("Affine", 3, 5, 40, 99)])
    assert verdict(parity) == "Not equal: Affine. The figures are below."


@pytest.fixture
def swap(library: Library) -> Library:
    library.answer = swapped()
    return library


def test_what_is_asked(swap: Library, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    swap.meanwhile = lambda: print("noise")
    assert main(["swap", "data.py:loader", "--to", "kornia", "--check", "--samples", "5", "--seed", "3", "-q"]) == 0
    (given, named) = swap.asked[0]
    assert given == ("data.py:loader",)
    assert {key: value for key, value in named.items() if key != "progress"} == {
        "to": "kornia", "transforms": None, "check": True, "run": None, "samples": 5, "device": None, "seed": 3,
    }  # fmt: skip
    out = capsys.readouterr().out
    assert out.startswith("pipefix swap data.py:loader --to kornia")
    assert "noise" not in out


def test_json(swap: Library, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["swap", "x", "--to", "kornia", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["format"] == "pipefix.swap/1"
    assert figures["before"] == {"shape": [3, 224, 224], "dtype": "float32", "bytes": 602112}
    assert figures["moves"][0] == {"transform": "RandomHorizontalFlip", "settings": "RandomHorizontalFlip(p=0.5)"}
    assert figures["parity"]["pixels"][1]["within"] is True and figures["gain"]["value"] == 1.9
    assert swap.asked[0][1]["check"] is False


def test_a_difference_is_an_exit_code_where_it_was_asked_for(swap: Library, capsys: pytest.CaptureFixture[str]) -> None:
    swap.answer = swapped(parity=Parity("kornia", "cpu", whole=PixelError("the whole list", 3, 5, 40, 99)))
    assert main(["swap", "x", "--to", "kornia", "--check"]) == 1
    assert "the two sides differ" in capsys.readouterr().err


def test_the_page_holds_its_pictures_and_asks_nothing_of_the_network(swap: Library, tmp_path: Path) -> None:
    page = tmp_path / "swap.html"
    assert main(["swap", "x", "--to", "kornia", "--html", str(page)]) == 0
    assert swap.asked[0][1]["check"] is True
    text = page.read_text()
    pictures = re.findall(r"data:image/png;base64,([\w+/=]+)", text)
    shades = [Image.open(io.BytesIO(base64.b64decode(picture))).getpixel((0, 0)) for picture in pictures]
    assert shades == [(shade,) * 3 for shade in SHADES]
    assert "default-src &#39;none&#39;" in text
    assert "http://" not in text.replace("http-equiv", "")
    assert main(["swap", "x", "--to", "kornia", "--html", str(page)]) == 0, "an older report of the same kind is replaced"
