"""Text tokenised on its way into rows, a row group at a time: the field that ``--text`` names becomes a column of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipefix.caches.manifest import Column, Recipe
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.extras import need

TOKENS = "input_ids"


class Tokenizer:
    """A tokenizer.json, or the tokenizer of a model, by its name, in the local cache."""

    def __init__(self, name: str, field: str) -> None:
        library: Any = need("tokenizers", extra="text", why="Tokenising text")
        self._field = field
        if name.endswith(".json") and not Path(name).is_file():  # looked for among models it would be asked of the network
            raise BadUsage(f"There is no file {name!r}.", advice="Give a tokenizer.json: --tokenizer FILE")
        try:
            kind = library.Tokenizer
            self._tokenizer = kind.from_file(name) if Path(name).is_file() else kind.from_pretrained(name)
        except Exception as error:
            raise BadUsage(
                f"No tokenizer could be made of {name!r}: {error}.", advice="Give a tokenizer.json: --tokenizer FILE"
            ) from error

    def ids(self, rows: Sequence[dict[str, Any]]) -> list[list[int]]:
        """The tokens of each row."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch([row[self._field] or "" for row in rows])]


def tokenizer_of(recipe: Recipe) -> Tokenizer | None:
    return Tokenizer(recipe.tokenizer, recipe.text or "") if recipe.tokenizer is not None else None


def stored(columns: Sequence[Column], recipe: Recipe) -> list[Column]:
    """Columns of what samples hold, with tokens in the place of the text."""
    if recipe.tokenizer is None:
        return list(columns)
    names = [column.name for column in columns]
    if recipe.text not in names:
        raise BadUsage(
            f"There is no field {recipe.text!r} to tokenise; a sample has {', '.join(names)}.",
            advice=f"Name one: --text {names[0]}",
        )
    tokens = Column(name=TOKENS, type="list<int32>", like="array")
    return [tokens if name == recipe.text else column for name, column in zip(names, columns, strict=True)]


def given(columns: Sequence[Column], recipe: Recipe) -> list[Column]:
    """And back: what samples hold."""
    text = Column(name=recipe.text or "", type="string")
    return [text if recipe.tokenizer is not None and column.name == TOKENS else column for column in columns]
