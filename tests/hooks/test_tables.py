"""Arrow, Parquet and pandas."""

from __future__ import annotations

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
def test_arrow_files(hooks, files, call, op):
    hooks.contract(lambda: call(files), "pyarrow", ops={**ARROW, op: "decode"})
    hooks.install("pyarrow")
    hooks.run(lambda: call(files))
    assert hooks.timer.bytes_read > 0
    hooks.run(lambda: call(files), replace=[Stage.DECODE])
    assert hooks.charged() == ARROW


PANDAS = {
    "read_csv": lambda at: pd.read_csv(at / "t.csv"),
    "read_parquet": lambda at: pd.read_parquet(at / "t.parquet"),
}


@pytest.mark.parametrize("name", PANDAS)
def test_pandas(hooks, files, name):
    bare = PANDAS[name](files)
    hooks.install("files", "pyarrow", "pandas")
    for how in ({}, {"record": True}):
        assert hooks.run(lambda: PANDAS[name](files), **how).equals(bare)
        assert hooks.charged()[f"pandas.{name}"] == "decode"
        assert "storage" in hooks.charged().values()
    again = hooks.run(lambda: PANDAS[name](files), replace=[Stage.DECODE, Stage.STORAGE])
    assert again.equals(bare)
    assert hooks.charged() == {}
    again.iloc[0, 0] = -1
    assert hooks.run(lambda: PANDAS[name](files), replace=[Stage.DECODE, Stage.STORAGE]).equals(bare)
