from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from pipefix.api.swap import Swapped
from pipefix.augment.parity import Panel, Parity
from pipefix.cli.main import main
from pipefix.report import swap_report, terminal
from pipefix.report.swap_report import (
    Moves,
    ParityFigures,
    PixelFigures,
    Stays,
    SwapReport,
    WireFigures,
)
from pipefix.vocabulary.quantity import Interval
from tests.cli.conftest import Library

SHADES = (10, 20, 30, 40)
PIXELS = PixelFigures(op="ColorJitter", pictures=16, mean=0.2, p99=1.0, worst=2.0, within=True, note="rounded once")
PARITY = ParityFigures(
    device="cpu",
    holds=True,
    pixels=[PixelFigures(op="HorizontalFlip", pictures=16, mean=0, p99=0, worst=0, within=True), PIXELS],
    whole=PixelFigures(op="the whole list", pictures=16, mean=0.3, p99=2.0, worst=9.0, within=True),
    declined=[Stays(transform="Lambda", why="a function cannot be looked into")],
)  # fmt: skip
REPORT = SwapReport(
    target="data.py:loader",
    to="kornia",
    stays=[Stays(transform="RandomResizedCrop", why="pictures differ in size")],
    moves=[Moves(transform="RandomHorizontalFlip", settings="RandomHorizontalFlip(p=0.5)"), Moves(transform="Identity")],
    before=WireFigures(shape=[3, 224, 224], dtype="float32", bytes=602112),
    after=WireFigures(shape=[3, 224, 224], dtype="uint8", bytes=150528),
    gain=Interval(1.9, 1.5, 2.4),
    notes=["There is no CUDA device here."],
    parity=PARITY,
)


def text(report: SwapReport, **manner: Any) -> str:
    return "\n".join(terminal.lines(swap_report.report(report), **manner))


def test_the_whole_report() -> None:
    said = text(REPORT)
    assert (
        "STAYS    On the CPU, in the dataset, before samples are collated:\n         - RandomResizedCrop: pictures differ in size"
        in said
    )
    assert (
        "MOVES    To the batch, as one module on its device:\n         - RandomHorizontalFlip(p=0.5)\n         - Identity" in said
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
    assert "Lambda: a function cannot be looked into" in said and "UNCHECKED" in said


def test_nothing_to_move_and_nothing_known() -> None:
    bare = SwapReport(
        target="x", to="dali", stays=[], moves=[], before=WireFigures(), after=WireFigures(dtype="uint8"),
        gain_why="Not predicted.",
    )  # fmt: skip
    said = text(bare)
    assert "Nothing can be moved." in said
    assert "DALI begins with the encoded file" in said
    assert "GAIN     Not predicted." in said


def test_a_difference_is_named() -> None:
    wrong = PixelFigures(op="Affine", pictures=3, mean=5, p99=40, worst=99, within=False)
    parity = ParityFigures(device="cpu", holds=False, pixels=[wrong])
    assert swap_report.verdict(parity) == "Not equal: Affine. The figures are below."


def test_narrow_and_ascii() -> None:
    said = terminal.lines(swap_report.report(REPORT), width=40, unicode=False)
    assert all(line.isascii() for line in said)


@pytest.fixture
def swap(library: Library) -> Library:
    library.answer = swapped(REPORT)
    return library


def swapped(report: SwapReport) -> Swapped:
    parity = Parity("kornia", "cpu", sheet=[Panel(*(np.full((2, 2, 3), shade) for shade in SHADES), mean=0.3)])
    return Swapped(cast(Any, None), report, parity, cast(Any, None))


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
    assert json.loads(capsys.readouterr().out)["format"] == "pipefix.swap/1"
    assert swap.asked[0][1]["check"] is False


def test_a_difference_is_an_exit_code_where_it_was_asked_for(swap: Library, capsys: pytest.CaptureFixture[str]) -> None:
    import msgspec

    worse = msgspec.structs.replace(REPORT, parity=msgspec.structs.replace(PARITY, holds=False))
    swap.answer = swapped(worse)
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


def test_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["swap", "x"]) == 2
    assert "--to" in capsys.readouterr().err
    assert main(["swap", "x", "--to", "opencv"]) == 2
    mine = tmp_path / "train.py"
    mine.write_text("print(1)\n")
    assert main(["swap", "x", "--to", "kornia", "--html", str(mine)]) == 2
    assert "will not be replaced" in capsys.readouterr().err
    assert mine.read_text() == "print(1)\n"
