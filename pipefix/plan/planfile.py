"""The plan file (``pipefix.plan.toml``): the settings, the cache and the augmentation to use, each with its evidence.

`fix` and `tune` write it, people edit it, the loader reads it. Both wings share this module, and it imports no other room.
"""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.files import read_regular, write_whole
from pipefix.vocabulary.quantity import Interval, core_count, size
from pipefix.vocabulary.version import VERSION
from pipefix.vocabulary.versioned import check_format, short, writable

FORMAT = "pipefix.plan/1"
NAME = "pipefix.plan.toml"
CACHES = "pipefix-caches"
"""The folder beside the plan in which `fix` builds caches."""
LARGEST = 16_000_000
"""Bytes: a hundred thousand times what a plan takes."""
_MOST_SHOWN = 200
"""Characters of a wrong value that an error repeats."""
_ADVICE = "Mend that line, or take the plan away: without plan=... the loader runs as it did before."


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a change is in the plan: throughput before and after it was made."""

    before: Interval
    """Samples a second."""
    after: Interval
    run: str | None = None
    """The run file that holds the measurement."""


class LoaderChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of the loader; what is None stays as the code has it."""

    num_workers: Annotated[int, Meta(ge=0, le=4096)] | None = None
    prefetch_factor: Annotated[int, Meta(ge=1, le=4096)] | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    start_method: Literal["fork", "forkserver", "spawn"] | None = None
    in_order: bool | None = None
    worker_threads: Annotated[int, Meta(ge=0, le=4096)] | None = None
    """Threads that native libraries may use in each worker."""
    fuse: Literal["close", "exact"] | None = None
    """Pictures are decoded, transformed and put into batches by one call each, where they can be."""
    engine: Literal["auto", "processes", "subprocess", "threads", "torch"] | None = None
    """FastLoader's way of bringing batches from workers. Two of them are gone, and mean ``processes``."""
    evidence: BeforeAfter | None = None

    def __post_init__(self) -> None:
        if self.engine in ("subprocess", "threads"):
            msgspec.structs.force_setattr(self, "engine", "processes")


class CacheChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cache to read samples from."""

    path: Annotated[str, Meta(min_length=1)]
    """Relative to the plan file."""
    store: Literal["source", "resized", "decoded", "sample", "rows"]
    format: Literal["lmdb", "parquet"] = "lmdb"
    evidence: BeforeAfter | None = None

    @property
    def is_of_fix(self) -> bool:
        """Whether `fix` made it, and nobody typed convert."""
        return Path(self.path).parts[:1] == (CACHES,)


class AugmentationChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Operations that move to the device."""

    backend: Literal["kornia", "dali"]
    operations: list[str] = []
    """In the order in which they run there."""
    evidence: BeforeAfter | None = None


Change = LoaderChange | CacheChange | AugmentationChange


class TunedOn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine that the figures come from."""

    cores: Annotated[float, Meta(gt=0, le=1_000_000)]
    """CPU seconds a second that the process could have, quota included."""
    cpu_model: str | None = None
    memory_bytes: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    gpus: list[str] = []

    def differences(self, here: TunedOn) -> list[str]:
        """What is different on this machine, in words; empty where the plan fits."""
        differences = []
        if not math.isclose(self.cores, here.cores, rel_tol=0.05):
            differences.append(f"it was tuned on {core_count(self.cores)}, here there are {here.cores:g}")
        if sorted(self.gpus) != sorted(here.gpus):
            differences.append(f"it was tuned with {_named(self.gpus)}, here there is {_named(here.gpus)}")
        if self.memory_bytes and here.memory_bytes and here.memory_bytes < 0.75 * self.memory_bytes:
            differences.append(f"it was tuned with {size(self.memory_bytes)} of memory, here there are {size(here.memory_bytes)}")
        return differences


class PlanFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str = FORMAT
    pipefix: str = VERSION
    created: str = ""
    """ISO 8601 with offset."""
    target: str = ""
    machine: TunedOn | None = None
    loader: LoaderChange | None = None
    cache: CacheChange | None = None
    augmentation: AugmentationChange | None = None

    def merged(self, change: Change) -> PlanFile:
        """Settings of the loader are added to those that are there; another cache or augmentation takes its place."""
        if isinstance(change, LoaderChange):
            settings = {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not None}
            return msgspec.structs.replace(self, loader=msgspec.structs.replace(self.loader or LoaderChange(), **settings))
        if isinstance(change, CacheChange):
            return msgspec.structs.replace(self, cache=change)
        return msgspec.structs.replace(self, augmentation=change)

    def is_for(self, target: str) -> bool:
        """Whether it was made for this target (``./data.py:loader`` is ``data.py:loader``), or does not say for which."""
        (path, *name), (own, *own_name) = writable(target).partition(":"), self.target.partition(":")
        return not own or (os.path.abspath(path), name) == (os.path.abspath(own), own_name)


def _named(gpus: list[str]) -> str:
    return " and ".join(sorted(gpus)) if gpus else "no GPU"


# -- text ------------------------------------------------------------------------------------------------------------------


def encode(plan: PlanFile) -> str:
    """TOML: single values first, then a table for each part."""
    lines = ["# Written by pipefix. Edit it freely; taking plan=... away from the loader is the way back."]
    _table(lines, "", msgspec.to_builtins(plan))
    return "\n".join(lines) + "\n"


def _table(lines: list[str], name: str, content: dict[str, Any]) -> None:
    values = {key: value for key, value in content.items() if value is not None and not _is_table(value)}
    tables = {key: value for key, value in content.items() if _is_table(value)}
    if name:
        lines += ["", f"[{name}]"]
    lines += [f"{key} = {_value(value)}" for key, value in values.items()]
    for key, inner in tables.items():
        _table(lines, f"{name}.{key}" if name else key, inner)


def _is_table(value: Any) -> bool:
    """An interval is short enough to stand on one line; everything else of several values is a table of its own."""
    return isinstance(value, dict) and set(value) != {"value", "low", "high"}


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the delete character.
        return json.dumps(writable(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def decode(text: str, *, origin: str) -> PlanFile:
    """The plan in ``text``; an `UnreadableFile` that names the line where there is none."""
    try:
        head = msgspec.toml.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        what = f"{origin} is not a plan file: it is not TOML ({str(error)[:_MOST_SHOWN]})."
        raise UnreadableFile(what, advice=_ADVICE) from error
    check_format(head, format=FORMAT, origin=origin, what="a plan file", advice=_ADVICE)
    if isinstance(head.get("loader"), dict):
        head["loader"] = {key: value for key, value in head["loader"].items() if key not in _GONE}
    try:
        plan = msgspec.convert(head, PlanFile, strict=True)
        if plan.cache is not None and "\0" in plan.cache.path:
            raise msgspec.ValidationError("A path cannot hold the character NUL - at `$.cache.path`")
    except msgspec.ValidationError as error:
        raise UnreadableFile(f"{origin}{_place(text, str(error))}: {_said(head, str(error))}.", advice=_ADVICE) from error
    return plan


_GONE = ("sharing", "batched_fetch")
"""Keys of ``[loader]`` that plans of earlier versions may have. They changed how quickly batches came, and are read over."""


_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


def _key(error: str) -> list[str]:
    """The dotted key that a validation error is about."""
    path, unknown = _PATH.search(error), _UNKNOWN.search(error)
    names = [part for part in path.group(1).split(".") if part] if path is not None else []
    return [*names, unknown.group(1)] if unknown is not None else names


def _place(text: str, error: str) -> str:
    """``, line 7`` where the key's line can be found."""
    wanted = ".".join(_key(error)).split("[")[0]
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (head := re.match(r"\s*\[([^\[\]]+)\]", line)) is not None:
            table = head.group(1).strip()
        key = re.match(r"\s*([\w.-]+)\s*=", line)
        full = table if head is not None else f"{table}.{key.group(1)}".strip(".") if key is not None else ""
        if full and wanted and (full == wanted or (key is not None and wanted.startswith(f"{full}."))):
            return f", line {number}"
    return ""


def _said(head: dict[str, Any], error: str) -> str:
    """The error with the value found."""
    names = _key(error)
    if _UNKNOWN.search(error) is not None:
        return f"there is no setting called {short('.'.join(names))}"
    value: Any = head
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    plain = _PATH.sub("", error)
    if plain.startswith("Invalid enum value") and (choices := _choices(names)):
        plain = f"it is one of {', '.join(choices)}"
    if len(plain) > _MOST_SHOWN:  # it repeats the value
        plain = f"{plain[:_MOST_SHOWN]}..."
    plain = plain[0].lower() + plain[1:]
    return f"{'.'.join(names)} is {short(value)}, but {plain}" if names and value is not None else plain


def _choices(names: list[str]) -> list[str]:
    """The texts that a setting may have; none where it is of another kind."""
    kind: Any = PlanFile
    for name in names:
        hint = get_type_hints(kind)[name]
        kind = next((kind for kind in (*get_args(hint), hint) if hasattr(kind, "__struct_fields__")), None)
        if kind is None:
            literals = [inner for inner in (*get_args(hint), hint) if get_origin(inner) is Literal]
            return [choice for literal in literals for choice in get_args(literal)]
    return []


# -- files -----------------------------------------------------------------------------------------------------------------


def text_of(path: Path) -> str | None:
    """What the plan file holds; None where there is none."""
    try:
        data = read_regular(path, LARGEST + 1)
        if len(data) > LARGEST:
            raise UnreadableFile(f"{path} is not a plan file: it is longer than {size(LARGEST)}.", advice=_ADVICE)
        return data.decode("utf-8-sig")  # editors on Windows put a mark before the text
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is not a plan file: byte {error.start} is not UTF-8 text.", advice=_ADVICE) from error
    except (OSError, ValueError) as error:
        is_folder = isinstance(error, OSError) and path.is_dir()
        why = "it is a folder" if is_folder else error.strerror if isinstance(error, OSError) else None
        advice = f"Name the file in it: {path / NAME}" if is_folder else _ADVICE
        raise UnreadableFile(f"The plan file {path} could not be read: {why or error}.", advice=advice) from error


def read(path: Path) -> PlanFile:
    if (text := text_of(path)) is None:
        advice = "fix and tune write one where they find what helps; without plan=... or --plan all runs as it did before."
        raise UnreadableFile(f"There is no plan file {path}.", advice=advice)
    return decode(text, origin=str(path))


def write(plan: PlanFile, path: Path) -> None:
    write_text(encode(plan), path.resolve(), advice="Choose a place that you may write to.")


def write_text(text: str, path: Path, *, advice: str) -> None:
    """Whole or not at all: a full disk leaves an older plan as it was."""
    try:
        write_whole(path, text.encode("utf-8"))
    except OSError as error:
        raise UnreadableFile(f"The plan file {path} could not be written: {error.strerror or error}.", advice=advice) from error
