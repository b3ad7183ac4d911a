"""Arrow, Parquet, pandas and imageio."""

# ruff: noqa: SIM115
from __future__ import annotations

import imageio.v2
import imageio.v3
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from pipefix.vocabulary.stage import Stage

TABLE = pa.table({"a": list(range(5000)), "b": [f"text {i}" for i in range(5000)]})
ARROW = {"pyarrow read": "storage"}


@pytest.fixture
def files(tmp_path):
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=500)
    pa.csv.write_csv(TABLE, tmp_path / "t.csv")
    pa.feather.write_feather(TABLE, tmp_path / "t.feather")
    TABLE.to_pandas().to_json(tmp_path / "t.json")
    imageio.v3.imwrite(tmp_path / "i.png", np.random.default_rng(1).integers(0, 255, (30, 40, 3), dtype=np.uint8))
    return tmp_path


@pytest.mark.parametrize(
    ("call", "op"),
    [
        (lambda at: pq.read_table(at / "t.parquet"), "pyarrow.parquet.read_table"),
        (lambda at: pa.csv.read_csv(at / "t.csv"), "pyarrow.csv.read_csv"),
        (lambda at: pa.feather.read_table(at / "t.feather"), "pyarrow.feather.read_table"),
    ],
    ids=["parquet", "csv", "feather"],
)
def test_arrow_files(seams, files, call, op):
    seams.contract(lambda: call(files), "pyarrow", ops={**ARROW, op: "decode"}, replace=[Stage.DECODE, Stage.STORAGE])
    seams.install("pyarrow")
    seams.run(lambda: call(files))
    assert seams.tap.bytes_read > 0
    seams.run(lambda: call(files), replace=[Stage.DECODE])
    assert seams.charged() == ARROW


def test_parquet_from_a_python_file(seams, files):
    seams.contract(
        lambda: pq.read_table(open(files / "t.parquet", "rb"), use_threads=False, pre_buffer=False),
        "pyarrow",
        ops={"pyarrow.parquet.read_table": "decode"},
    )


PANDAS = {
    "read_csv": lambda at: pd.read_csv(at / "t.csv"),
    "read_json": lambda at: pd.read_json(at / "t.json"),
    "read_parquet": lambda at: pd.read_parquet(at / "t.parquet"),
}


@pytest.mark.parametrize("name", PANDAS)
def test_pandas(seams, files, name):
    bare = PANDAS[name](files)
    seams.install("files", "pyarrow", "pandas")
    for how in ({}, {"record": True}):
        assert seams.run(lambda: PANDAS[name](files), **how).equals(bare)
        assert seams.charged()[f"pandas.{name}"] == "decode"
        assert "storage" in seams.charged().values()
    again = seams.run(lambda: PANDAS[name](files), replace=[Stage.DECODE, Stage.STORAGE])
    assert again.equals(bare)
    assert seams.charged() == {}
    again.iloc[0, 0] = -1
    assert seams.run(lambda: PANDAS[name](files), replace=[Stage.DECODE, Stage.STORAGE]).equals(bare)


@pytest.mark.parametrize("module", [imageio.v2, imageio.v3])
def test_imageio(seams, files, module):
    def read():
        return np.asarray(module.imread(files / "i.png"))

    bare = read()
    seams.install("files", "pil", "imageio")
    for how in ({}, {"record": True}):
        assert (seams.run(read, **how) == bare).all()
        assert seams.charged()["imageio.imread"] == "decode"
        assert seams.charged()["read"] == "storage"
    assert (seams.run(read, replace=[Stage.DECODE, Stage.STORAGE]) == bare).all()
    assert "imageio.imread" not in seams.charged()
