"""Reads and writes JSON files with a format and a version: older versions are read, newer major ones refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipefix.vocabulary import files
from pipefix.vocabulary.errors import UnreadableFile

T = TypeVar("T")
LARGEST = 1 << 28
"""Bytes of a file that are read; the largest run file that was seen had 2 MB."""


def text(value: object, *, indent: bool = True) -> str:
    """JSON, over several lines or in one. What has no finite value is written as null, as JSON demands."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(writable(msgspec.to_builtins(value)))
    return (msgspec.json.format(data, indent=1) if indent else data).decode("utf-8") + "\n"


def writable(value: Any) -> Any:
    """A file name that is not UTF-8 reaches us as lone surrogates; in what is written they are escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {writable(key): writable(item) for key, item in value.items()}
    return [writable(item) for item in value] if isinstance(value, list) else value


def decode(
    data: bytes | str, kind: type[T], *, format: str, origin: str, what: str, advice: str | None = None,
    prepare: Callable[[dict[str, Any]], Any] = lambda head: head,
) -> T:  # fmt: skip
    """The noun that ``data`` holds, of this major version or an older one.

    Args:
        data: JSON text.
        kind: the msgspec struct that it is read into.
        format: name and version that this pipefix writes, such as ``pipefix.run/1``.
        origin: where the data is from, for messages.
        what: what it should be, for messages: "a pipefix run file".
        advice: how to come by a good one.
        prepare: changes the decoded object before it is held against ``kind``.
    """
    if not data.strip():
        raise UnreadableFile(f"{origin} is empty: it is not {what}.", advice=advice)
    try:
        head = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableFile(f"{origin} is not {what}: it is not JSON ({error}).", advice=advice) from error
    check_format(head, format=format, origin=origin, what=what, advice=advice)
    try:
        return msgspec.convert(prepare(head), kind)
    except msgspec.ValidationError as error:
        raise UnreadableFile(f"{origin} is damaged: {error}.", advice=advice) from error


def check_format(head: Any, *, format: str, origin: str, what: str, advice: str | None = None) -> None:
    """Refuse what names another format, or a major version that is newer than ``format``."""
    family, _, newest = format.partition("/")
    name = head.get("format") if isinstance(head, dict) else None
    if not isinstance(name, str) or not name.startswith(f"{family}/"):
        raise UnreadableFile(f'{origin} is not {what}: its "format" is {short(name)}, not {format!r}.', advice=advice)
    major = name.removeprefix(f"{family}/").split(".")[0]
    if not major.isdecimal() or len(major) > 9 or int(major) > int(newest):
        message = f"{origin} was written by a newer pipefix: its format is {short(name)}, and this one reads up to {format!r}."
        raise UnreadableFile(message, advice="Upgrade with: pip install --upgrade pipefix")


def short(value: object) -> str:
    """A value found in a file, as it is quoted in a message."""
    try:
        shown = repr(value)
    except ValueError:  # Python writes no integers of more than 4,300 digits
        return "a huge number"
    return shown if len(shown) <= 80 else f"{shown[:60]}… ({len(shown):,} characters)"


def read(path: Path, *, what: str) -> bytes:
    """The whole file, if it has a size that such files have."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # the latter: a NUL in the name
        raise UnreadableFile(f"The {what} {path} could not be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(data) > LARGEST:
        raise UnreadableFile(f"{path} is no {what}: it is larger than {LARGEST >> 20} MiB.")
    return data


def write(data: bytes | str, path: Path, *, what: str) -> None:
    """A file whole or not at all: a full disk leaves an older one as it was. Pipes and devices are written straight."""
    if isinstance(data, str):
        data = data.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            files.write_whole(path.resolve(), data)
    except (OSError, RuntimeError, ValueError) as error:  # the last two: a loop of links, a NUL in the name
        advice = f"Choose a place with room that you may write to, such as DIR/{path.name}"
        reason = getattr(error, "strerror", None) or error
        raise UnreadableFile(f"The {what} {path} could not be written: {reason}.", advice=advice) from error
