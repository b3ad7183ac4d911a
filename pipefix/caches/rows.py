"""Samples as rows of typed columns: tables, text, token ids, pictures.

A picture is its file's bytes and a path, and named in the schema's metadata as Hugging Face ``datasets`` has it, which opens such
files as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipefix.caches.maker import is_text
from pipefix.caches.manifest import Column, Recipe
from pipefix.caches.pictures import kind_of
from pipefix.caches.record import Picture, Unstorable, plain_of
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.extras import need
from pipefix.vocabulary.quantity import counted

SAMPLE = "sample"
_PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float", "double", "bool",
          "string", "binary", "large_string")  # fmt: skip
_LARGEST_ROW = 256 << 20
_LIST = re.compile(r"list<(?:item: |element: )?(\w+)>\Z")


def type_of(name: str) -> Any:
    """Arrow's type by name: plain ones, lists of them, and pictures."""
    if name == str(_PICTURE):
        return _PICTURE
    list_match = _LIST.match(name)
    inner = list_match[1] if list_match else name
    if inner not in _TYPES:
        raise ValueError(f"a column of type {name!r}")
    plain = pa.type_for_alias(inner)
    return pa.list_(plain) if list_match else plain


def fields(sample: Any, *, apart: bool = False) -> tuple[str, dict[str, Any]]:
    """The shape of a sample, and its fields by name. ``apart``: numbers of a tuple are fields also where all are of one type."""
    if isinstance(sample, dict):
        for key in sample:
            if not isinstance(key, str):
                raise Unstorable(f"a field's name is {key!r}: columns are named by text")
        return "dict", dict(sample)
    if isinstance(sample, Picture):
        return "value", {"value": sample}
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return "dict", dict(zip(sample._fields, sample, strict=True))
    numbers = isinstance(sample, (tuple, list)) and all(isinstance(element, (int, float)) for element in sample)
    mixed = isinstance(sample, tuple) and len(set(map(type, sample))) > 1  # of a class and a target one column would make floats
    if isinstance(sample, (tuple, list)) and (mixed or apart or not numbers):
        return "tuple", {f"field_{place}": element for place, element in enumerate(sample)}
    return "value", {"value": sample}


def plain(name: str, value: Any) -> tuple[Any, str, Any]:
    """A field as Arrow takes it, what it was, and the Arrow type that it asks for (None leaves that to Arrow)."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes):
        return value, "scalar", None
    if kind is Picture:
        return {"bytes": value.data, "path": None}, "image", _PICTURE
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item(), "numpy", _arrow_type(name, value.dtype)
    like = "tuple" if kind is tuple else "list"
    if hasattr(kind, "detach"):
        try:
            value, like = value.detach().cpu().numpy(), "tensor"
        except (TypeError, RuntimeError):
            dtype, layout = (str(each).removeprefix("torch.") for each in (value.dtype, value.layout))
            words = dtype if layout == "strided" else f"{dtype}, {layout}"
            raise Unstorable(f"field {name!r} is a tensor of {words}, which columns do not have") from None
    elif isinstance(value, np.ndarray):
        value, like = np.asarray(value) if type(value) is np.memmap else value, "array"
    if isinstance(value, np.ndarray):
        if value.ndim > 1 or value.dtype.kind not in "biuf":
            raise Unstorable(
                f"field {name!r} is an array of {value.dtype} with {counted(value.ndim, 'dimension')}: "
                "columns hold numbers and lists"
            )
        kind_of = _arrow_type(name, value.dtype)
        return (value.item(), f"{like}-0", kind_of) if value.ndim == 0 else (value, like, pa.list_(kind_of))
    if isinstance(value, (list, tuple)) and all(isinstance(element, (bool, int, float, str)) for element in value):
        return list(value), like, None
    if isinstance(value, (int, float, str)):
        return plain_of(value), "scalar", None
    raise Unstorable(f"field {name!r} is a {kind.__qualname__}: columns hold numbers, text, bytes, lists of them and PIL images")


def _arrow_type(name: str, dtype: Any) -> Any:
    with suppress(pa.ArrowNotImplementedError):
        if dtype.isnative:
            return pa.from_numpy_dtype(dtype)
    raise Unstorable(f"field {name!r} holds {dtype}, which columns do not have")


def infer(samples: Sequence[Any]) -> tuple[str, list[Column]]:
    """The shape of these samples, and columns that fit them."""
    shapes = [fields(sample) for sample in samples]
    if len({shape for shape, _ in shapes}) > 1:  # (3, 0.5) and (3, 0)
        shapes = [fields(sample, apart=True) for sample in samples]
    columns = []
    for name in dict.fromkeys(key for _, fields_of_sample in shapes for key in fields_of_sample):
        if name == SAMPLE:
            raise Unstorable(f"a field is called {name!r}, the name of the column that holds the sample's number")
        if any(name not in fields_of_sample for _, fields_of_sample in shapes):
            raise Unstorable(f"only some samples have a field {name!r}, and it would come back as None in the others")
        plain_values = [plain(name, fields_of_sample[name]) for _, fields_of_sample in shapes]
        like = next((like for value, like, _ in plain_values if value is not None), "scalar")
        arrow_type = next((arrow_type for _, _, arrow_type in plain_values if arrow_type is not None), None)
        try:
            kind = arrow_type if arrow_type is not None else pa.array([value for value, _, _ in plain_values]).type
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError) as error:
            raise Unstorable(f"field {name!r} has no one type, or none that a column has: {error}") from None
        kind_name = str(kind).replace("item: ", "").replace("element: ", "")
        columns.append(Column(name=name, type="string" if kind_name == "null" else kind_name, like=like))
        try:
            type_of(columns[-1].type)
        except ValueError as error:
            raise Unstorable(f"field {name!r}: {error}") from None
    if not columns:
        raise Unstorable("a sample without fields: rows need one")
    kinds = kinds_of(columns)
    for sample in samples:
        row_of(sample, kinds)
    return shapes[0][0], columns


def kinds_of(columns: Sequence[Column]) -> dict[str, tuple[Any, str]]:
    """Arrow's type of each column, and what its values are."""
    return {column.name: (type_of(column.type), column.like) for column in columns}


def schema_of(columns: Sequence[Column]) -> Any:
    schema = pa.schema([(SAMPLE, pa.int64()), *((column.name, type_of(column.type)) for column in columns)])
    pictured = {column.name: {"_type": "Image"} for column in columns if column.like == "image"}
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": pictured}})}) if pictured else schema


def row_of(sample: Any, kinds: dict[str, tuple[Any, str]]) -> dict[str, Any]:
    """A sample's fields, each checked against its column's kind, so that a misfit is told of the sample that it is in."""
    _, sample_fields = fields(sample, apart="field_0" in kinds)
    row = {}
    for name, value in sample_fields.items():
        held, like, wanted = plain(name, value)
        if name not in kinds:
            raise Unstorable(f"field {name!r} was not in the samples that the columns were made from")
        kind, kind_like = kinds[name]
        if held is not None and not _fits(held, kind):
            raise Unstorable(f"field {name!r} is {type(held).__name__} {str(held)[:40]!r}, and its column holds {kind}")
        if held is not None and (like != kind_like or (like == "numpy" and wanted != kind)):
            raise Unstorable(f"field {name!r} is a {type(value).__qualname__}, and in other samples of another type")
        row[name] = held
    for name in kinds.keys() - row.keys():
        raise Unstorable(f"field {name!r} is missing, and would come back as None")
    if size_of(row) > _LARGEST_ROW:
        raise Unstorable(f"its fields hold {size_of(row):,} bytes, and a row that is read again at most {_LARGEST_ROW:,}")
    return row


def size_of(value: Any) -> int:
    """About as many bytes as a row, or a field of it, takes in columns."""
    if type(value) is dict:
        return sum(map(size_of, value.values()))
    if type(value) is list:
        return sum(map(len, value)) if value and type(value[0]) is str else 8 * len(value)
    return value.nbytes if isinstance(value, np.ndarray) else len(value) if isinstance(value, (str, bytes)) else 8


def _fits(value: Any, kind: Any) -> bool:
    held = type(value)
    if kind == _PICTURE or held is dict:
        return kind == _PICTURE and held is dict
    if pa.types.is_floating(kind):
        return held in (int, float) and _kept(value, kind.to_pandas_dtype())
    if pa.types.is_boolean(kind):
        return held is bool
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        return held is int and bool(limits.min <= value <= limits.max)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return held is str and is_text(value)
    if pa.types.is_binary(kind):
        return held is bytes
    if held is np.ndarray:
        return bool(value.size == 0 or pa.from_numpy_dtype(value.dtype) == kind.value_type)
    return held is list and all(_fits(element, kind.value_type) for element in value)


def _kept(value: Any, kind: Any) -> bool:
    """Whether floating point of this kind holds the number as it is."""
    if type(value) is float and kind is np.float64:
        return True
    with suppress(OverflowError), np.errstate(over="ignore"):
        return bool(float(kind(value)) == value or value != value)
    return False


def samples_of(table: Any, columns: Sequence[Column], shape: str, picture: Callable[[Picture], Any]) -> list[Any]:
    """The rows of a table as the samples that they were; ``picture`` makes images of their files."""
    likes = {column.name: column.like for column in columns}
    names = [name for name in table.column_names if name != SAMPLE]
    fields_by_name = [_values(table.column(name), likes.get(name, "scalar"), picture) for name in names]
    if shape == "value" and len(names) == 1:
        return fields_by_name[0]
    rows = zip(*fields_by_name, strict=True)
    return [tuple(row) for row in rows] if shape == "tuple" else [dict(zip(names, row, strict=True)) for row in rows]


def _values(column: Any, like: str, picture: Callable[[Picture], Any]) -> list[Any]:
    if like == "image":
        return [
            None if held is None else picture(Picture(held["bytes"], kind_of(held["bytes"][:16]) or "", 0, 0, "image"))
            for held in column.to_pylist()
        ]
    if like.endswith("-0"):
        kind = column.type.to_pandas_dtype()
        return [None if value is None else _like(np.array(value, kind), like[:-2]) for value in column.to_pylist()]
    if like in ("array", "tensor"):
        return [None if row.values is None else _like(row.values.to_numpy(zero_copy_only=False), like) for row in column]
    values: list[Any] = column.to_pylist()
    if like not in ("numpy", "tuple"):
        return values
    made = tuple if like == "tuple" else column.type.to_pandas_dtype()
    return [None if value is None else made(value) for value in values]


def _like(array: Any, like: str) -> Any:
    if like == "array":
        return array.copy()
    import torch

    return torch.from_numpy(array.copy())


# -- text tokenised on its way into rows ---------------------------------------------------------------------------------------

TOKENS = "input_ids"


def tokenizer_of(recipe: Recipe) -> Any:
    """A tokenizer.json, or the tokenizer of a model, by its name, in the local cache; None where nothing is tokenised."""
    if recipe.tokenizer is None:
        return None
    kind = need("tokenizers", package="tokenizers", why="Tokenising text").Tokenizer
    if recipe.tokenizer.endswith(".json") and not Path(recipe.tokenizer).is_file():  # as a model's name the network would be asked
        raise BadUsage(f"There is no file {recipe.tokenizer!r}.", advice="Give a tokenizer.json: --tokenizer FILE")
    try:
        tokenizer = kind.from_file(recipe.tokenizer) if Path(recipe.tokenizer).is_file() else kind.from_pretrained(recipe.tokenizer)
    except Exception as error:
        raise BadUsage(
            f"No tokenizer could be made of {recipe.tokenizer!r}: {error}.", advice="Give a tokenizer.json: --tokenizer FILE"
        ) from error
    tokenizer.no_padding()  # to the longest text of its row group, whichever that happens to be
    return tokenizer


def with_tokens(columns: Sequence[Column], recipe: Recipe) -> list[Column]:
    """Columns of what samples hold, with tokens in the place of the text."""
    tokenizer = tokenizer_of(recipe)
    if tokenizer is None:
        return list(columns)
    names = [column.name for column in columns]
    if recipe.text not in names:
        raise BadUsage(
            f"There is no field {recipe.text!r} to tokenise; a sample has {', '.join(names)}.",
            advice=f"Name one: --text {names[0]}",
        )
    if TOKENS in names and recipe.text != TOKENS:
        raise BadUsage(
            f"A sample has a field {TOKENS!r} already, the name under which tokens of {recipe.text!r} are stored.",
            advice="Rename it in the dataset, or leave --tokenizer and --text out: what it holds is stored as it is.",
        )
    state = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]
    tokens = Column(name=TOKENS, type="list<int32>", like="array", state=state)
    return [tokens if name == recipe.text else column for name, column in zip(names, columns, strict=True)]


def with_text(columns: Sequence[Column], recipe: Recipe) -> list[Column]:
    """And back: columns of what samples hold."""
    text = Column(name=recipe.text or "", type="string")
    return [text if recipe.tokenizer is not None and column.name == TOKENS else column for column in columns]
