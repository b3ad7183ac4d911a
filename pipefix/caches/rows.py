"""Samples as rows of typed Parquet columns: tables, text, token ids. Text is tokenised on the way, a row group at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipefix.caches import parquet
from pipefix.caches.blueprint import Blueprint
from pipefix.caches.manifest import Column
from pipefix.caches.record import Unstorable
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.extras import need

GROUP_ROWS = 1024
TOKENS = "input_ids"
_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float", "double", "bool",
          "string", "binary", "large_string")  # fmt: skip
_LIST = re.compile(r"list<(?:item: |element: )?(\w+)>\Z")


def type_of(name: str) -> Any:
    """Arrow's type by name: plain ones, and lists of them."""
    found = _LIST.match(name)
    inner = found[1] if found else name
    if inner not in _TYPES:
        raise ValueError(f"a column of type {name!r}")
    plain = pa.type_for_alias({"halffloat": "float16", "float": "float32", "double": "float64"}.get(inner, inner))
    return pa.list_(plain) if found else plain


def fields(sample: Any) -> tuple[str, dict[str, Any]]:
    """The shape of a sample, and its fields by name."""
    if isinstance(sample, dict):
        return "dict", {str(key): value for key, value in sample.items()}
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return "dict", dict(zip(sample._fields, sample, strict=True))
    if isinstance(sample, (tuple, list)) and not all(isinstance(one, (int, float)) for one in sample):
        return "tuple", {f"field_{place}": one for place, one in enumerate(sample)}
    return "value", {"value": sample}


def plain(name: str, value: Any) -> tuple[Any, str, Any]:
    """A field as Arrow takes it, what it was, and the Arrow type that it asks for (None leaves that to Arrow)."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes):
        return value, "scalar", None
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item(), "scalar", pa.from_numpy_dtype(value.dtype)
    like = "list"
    if hasattr(value, "detach"):
        value, like = value.detach().cpu().numpy(), "tensor"
    elif isinstance(value, np.ndarray):
        like = "array"
    if isinstance(value, np.ndarray):
        if value.ndim > 1 or value.dtype.kind not in "biuf":
            raise Unstorable(
                f"field {name!r} is an array of {value.dtype} with {value.ndim} dimensions: columns hold numbers and lists"
            )
        kind_of = pa.from_numpy_dtype(value.dtype)
        return (value.item(), f"{like}-0", kind_of) if value.ndim == 0 else (value, like, pa.list_(kind_of))
    if isinstance(value, (list, tuple)) and all(isinstance(one, (bool, int, float, str)) for one in value):
        return list(value), like, None
    if isinstance(value, (int, float, str)):
        return next(base(value) for base in (int, float, str) if isinstance(value, base)), "scalar", None
    raise Unstorable(f"field {name!r} is a {kind.__qualname__}: columns hold numbers, text, bytes and lists of them")


def infer(samples: Sequence[Any], tokenise: str | None) -> tuple[str, list[Column]]:
    """Columns that fit these samples."""
    shapes = [fields(sample) for sample in samples]
    shape, first = shapes[0]
    columns = []
    for name in dict.fromkeys(key for _, one in shapes for key in one):
        if name == parquet.SAMPLE:
            raise Unstorable(f"a field is called {name!r}, the name of the column that holds the sample's number")
        told = [plain(name, one.get(name)) for _, one in shapes]
        like = next((like for value, like, _ in told if value is not None), "scalar")
        asked = next((asked for _, _, asked in told if asked is not None), None)
        if name == tokenise:
            columns.append(Column(name=TOKENS, type="list<int32>", like="array"))
            continue
        try:
            kind = asked if asked is not None else pa.array([value for value, _, _ in told]).type
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise Unstorable(f"field {name!r} has no one type: {error}") from None
        kind_name = str(kind).replace("item: ", "").replace("element: ", "")
        columns.append(Column(name=name, type="string" if kind_name == "null" else kind_name, like=like))
    if tokenise is not None and tokenise not in first:
        raise BadUsage(
            f"There is no field {tokenise!r} to tokenise; a sample has {', '.join(first)}.",
            advice=f"Name one: --text {next(iter(first))}",
        )
    for column in columns:
        try:
            type_of(column.type)
        except ValueError as error:
            raise Unstorable(f"field {column.name!r}: {error}") from None
    return shape, columns


def schema_of(columns: Sequence[Column]) -> Any:
    return pa.schema([(parquet.SAMPLE, pa.int64()), *((one.name, type_of(one.type)) for one in columns)])


def tokeniser(name: str) -> Callable[[list[str]], list[list[int]]]:
    """A function over batches of texts: a tokenizer.json, or the name of a model whose tokenizer is in the local cache."""
    library: Any = need("tokenizers", extra="text", why="Tokenising text")
    try:
        found = library.Tokenizer.from_file(name) if Path(name).is_file() else library.Tokenizer.from_pretrained(name)
    except Exception as error:
        raise BadUsage(
            f"No tokenizer could be made of {name!r}: {error}.", advice="Give a tokenizer.json: --tokenizer FILE"
        ) from error

    def batch(texts: list[str]) -> list[list[int]]:
        return [one.ids for one in found.encode_batch(texts)]

    return batch


class RowsWriter:
    """Collects rows, and writes them a row group at a time."""

    def __init__(self, path: Path, blueprint: Blueprint) -> None:
        self._columns = blueprint.columns
        self._schema = schema_of(blueprint.columns)
        self._writer = parquet.ParquetWriter(path, self._schema)
        recipe = blueprint.recipe
        self._text = recipe.text if recipe.tokenizer is not None else None
        self._tokenise = tokeniser(recipe.tokenizer) if recipe.tokenizer is not None else None
        self._samples: list[int] = []
        self._rows: list[dict[str, Any]] = []

    def add(self, sample: int, row: Any) -> None:
        self._samples.append(sample)
        self._rows.append(row)
        if len(self._rows) >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        arrays = [pa.array(self._samples, pa.int64())]
        for column, field in zip(self._columns, self._schema, strict=False):
            field = self._schema.field(column.name)
            arrays.append(self._array(column.name, field.type))
        self._writer.add_table(pa.table(arrays, self._schema))
        self._samples, self._rows = [], []

    def _array(self, name: str, kind: Any) -> Any:
        if self._tokenise is not None and name == TOKENS and self._text is not None:
            return pa.array(self._tokenise([row[self._text] or "" for row in self._rows]), kind)
        return pa.array([row.get(name) for row in self._rows], kind)

    def close(self) -> list[tuple[int, int, int, int]]:
        self._flush()
        return self._writer.close()

    def abandon(self) -> None:
        self._writer.abandon()


def row_of(sample: Any, columns: dict[str, Any], text: str | None) -> dict[str, Any]:
    """A sample's fields, each checked against its column's type, so that a misfit is told of the sample that it is in."""
    _, found = fields(sample)
    row = {}
    for name, value in found.items():
        held, _, _ = plain(name, value)
        kind = columns.get(name)
        if kind is None and name != text:
            raise Unstorable(f"field {name!r} was not in the samples that the columns were made from")
        if name == text and not isinstance(held, (str, type(None))):
            raise Unstorable(f"field {name!r} is a {type(held).__name__}, not text")
        if kind is not None and held is not None and not _fits(held, kind):
            raise Unstorable(f"field {name!r} is {type(held).__name__} {str(held)[:40]!r}, and its column holds {kind}")
        row[name] = held
    return row


def _fits(value: Any, kind: Any) -> bool:
    held = type(value)
    if pa.types.is_floating(kind):
        return held is float or held is int
    if pa.types.is_boolean(kind):
        return held is bool
    if pa.types.is_integer(kind):
        return held is int and _range(kind)[0] <= value <= _range(kind)[1]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return held is str
    if pa.types.is_binary(kind):
        return held is bytes
    if held is np.ndarray:
        return bool(value.size == 0 or pa.from_numpy_dtype(value.dtype) == kind.value_type)
    return held is list and all(_fits(one, kind.value_type) for one in value)


def _range(kind: Any) -> tuple[int, int]:
    bits = kind.bit_width
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if pa.types.is_signed_integer(kind) else (0, (1 << bits) - 1)


class Rebuilt:
    """Makes samples of the rows of a table again."""

    def __init__(self, columns: Sequence[Column], shape: str) -> None:
        self._likes = {one.name: one.like for one in columns}
        self._shape = shape

    def all(self, table: Any) -> list[Any]:
        """Every row of a table."""
        names = [name for name in table.column_names if name != parquet.SAMPLE]
        columns = [self._column(table.column(name), self._likes.get(name, "scalar")) for name in names]
        if self._shape == "value" and len(columns) == 1:
            return list(columns[0])
        rows = zip(*columns, strict=True)
        return [tuple(row) for row in rows] if self._shape == "tuple" else [dict(zip(names, row, strict=True)) for row in rows]

    def _column(self, column: Any, like: str) -> list[Any]:
        if like == "scalar":
            values: list[Any] = column.to_pylist()
            return values
        if like.endswith("-0"):
            kind = column.type.to_pandas_dtype()
            return [_like(np.array(one, kind), like[:-2]) for one in column.to_pylist()]
        if like == "list":
            lists: list[Any] = column.to_pylist()
            return lists
        return [_like(None if one.values is None else one.values.to_numpy(zero_copy_only=False), like) for one in column]


def _like(array: Any, like: str) -> Any:
    if array is None:
        return None
    if like == "tensor":
        import torch

        return torch.from_numpy(array.copy())
    return array.copy()
