"""fsspec. Asynchronous file systems (s3, gcs, http, …) do their work in another thread: waiting for it is the storage cost.

Buffered remote files fetch blocks; each fetch is one operation, so what the block cache can answer costs nothing. Local files go
through ``open`` and are seen there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from pipefix.hooks import object_answers
from pipefix.hooks.calls import STORAGE, Patches, SampleTimer, hook
from pipefix.hooks.object_answers import Answer

LIBRARY = "fsspec"

_ASKING = frozenset({"_cat_file", "_cat", "_cat_ranges", "_info", "_ls", "_exists", "_isfile", "_isdir", "_size", "_sizes", "_glob",
                     "_find", "_du", "async_fetch_range"})  # fmt: skip
"""Coroutines that only ask: their results can stand for them."""
_PLAIN = (str, int, float, bool, type(None))
_UNKNOWN = {"size_unknown": True}
_Question = tuple[str, int, int | None]
"""URL, begin, end."""


def install(timer: SampleTimer, patches: Patches) -> None:
    import fsspec.asyn
    import fsspec.spec

    original = fsspec.asyn.sync

    def counted(*args: Any, **kwargs: Any) -> Any:
        value = original(*args, **kwargs)
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        timer.bytes_read += sum(len(part) for part in parts if isinstance(part, bytes))
        return value

    @hook(timer, patches, fsspec.asyn, "sync")
    def sync(loop: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(func, "__name__", "")
        call = (STORAGE, f"fsspec.{name.lstrip('_')}", counted, (loop, func, *args), kwargs)
        ask = partial(timer.timed_call, *call, replayable=name in _ASKING)
        return _on_tape(timer, getattr(func, "__self__", None), name, args, kwargs, ask)

    _cut(timer, patches, fsspec.spec.AbstractBufferedFile, "_fetch_range", "fsspec.fetch_range")
    _cut(timer, patches, fsspec.spec.AbstractFileSystem, "cat_file", "fsspec.cat_file")


def _cut(timer: SampleTimer, patches: Patches, kind: type, name: str, label: str) -> None:
    """A method, on every class that defines it."""
    child: type
    for child in kind.__subclasses__():
        _cut(timer, patches, child, name, label)
    if name not in vars(kind):
        return
    original = getattr(kind, name)

    @hook(timer, patches, kind, name)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Of local files the hook for files sees what is read, which it leaves to a storage operation around it.
        protocol = getattr(getattr(self, "fs", self), "protocol", ())
        if "file" in (protocol if isinstance(protocol, (tuple, list)) else (protocol,)):
            return original(self, *args, **kwargs)
        return _on_tape(timer, self, name, args, kwargs, partial(timer.timed_call, STORAGE, label, original, (self, *args), kwargs))


# -- objects of a source cache ------------------------------------------------------------------------------------------------


def _on_tape(
    timer: SampleTimer, held: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], ask: Callable[[], Any]
) -> Any:
    """``ask()``, or what the recording knows of the objects that it asks for. ``held``: the file or file system that is asked."""
    playing, keeping = object_answers.player(timer), object_answers.keeper(timer)
    if playing is None and (keeping is None or timer.stage is STORAGE):
        if timer.recording is not None:
            for url, _, _ in (_questions(held, name, args, kwargs) or ())[:1]:
                object_answers.noted(timer, url)
        return ask()
    questions = _questions(held, name, args, kwargs)
    if questions is None:
        return ask()
    if playing is not None:
        recorded = [playing.find_object(*question) for question in questions]
        answers = [answer for answer in recorded if answer is not None and _tells(answer, name)]
        if len(answers) == len(questions):
            return _value(held, name, args, answers)
        return ask()  # it counts as a miss there
    with object_answers.one_question():  # what answers it may ask by another client, whose answer is this one once more
        value = ask()
    if name == "_info" and isinstance(value, dict) and isinstance(value.get("size"), int) and value.get("type") == "file":
        info = {key: fact for key, fact in value.items() if isinstance(fact, _PLAIN)}
        object_answers.keep(timer, Answer(questions[0][0], value["size"], 0, None, {"info": info}), LIBRARY)
    elif name == "_size" and isinstance(value, int):
        object_answers.keep(timer, Answer(questions[0][0], value, 0, None, {}), LIBRARY)
    elif name != "_info":
        for (url, begin, end), data in zip(questions, _parts(held, name, value), strict=False):
            size = getattr(held, "size", None)  # of a file that is open; a file system has a method of that name
            unknown = end is not None and not isinstance(size, int)
            whole = size if isinstance(size, int) else begin + len(data)
            object_answers.keep(timer, Answer(url, whole, begin, data, _UNKNOWN if unknown else {}), LIBRARY)
    return value


def _questions(held: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[_Question] | None:
    """The objects that a call asks for; None where it asks for something else."""
    system = getattr(held, "fs", held)
    if not hasattr(system, "unstrip_protocol"):
        return None
    with suppress(ValueError, TypeError, AttributeError):
        if name in ("async_fetch_range", "_fetch_range"):
            begin, end = _given(args, kwargs, "start", "end")
            return [(_url(system, held.path), begin, end)] if _is_span(begin, end) else None
        if name == "async_fetch_all":
            return [(_url(system, held.path), 0, None)]
        if name in ("_cat_file", "cat_file"):
            path, begin, end = _given(args, kwargs, "path", "start", "end")
            begin = begin or 0
            return [(_url(system, path), begin, end)] if _is_span(begin, end) else None
        if name == "_info":
            return [(_url(system, *_given(args, kwargs, "path")), 0, 0)]
        if name in ("_exists", "_isfile", "_size") and args:
            return [(_url(system, args[0]), 0, 0)]
        if name == "_cat" and len(args) == 1 and not kwargs:
            paths = args[0] if isinstance(args[0], list) else [args[0]]
            urls = sorted({_url(system, path) for path in paths})
            return [(url, 0, None) for url in urls] if not any("*" in path for path in paths) else None
    return None


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], *names: str) -> list[Any]:
    """A call's first parameters, given by place or by name; None for those that were not."""
    return [args[place] if place < len(args) else kwargs.get(name) for place, name in enumerate(names)]


def _url(system: Any, path: str) -> str:
    return object_answers.key_of(system.unstrip_protocol(path))


def _is_span(begin: Any, end: Any) -> bool:
    return isinstance(begin, int) and begin >= 0 and (end is None or (isinstance(end, int) and end >= begin))


def _tells(answer: Answer, name: str) -> bool:
    return "info" in answer.told if name == "_info" else name != "_size" or "size_unknown" not in answer.told


def _parts(held: Any, name: str, value: Any) -> list[bytes]:
    """What was answered, in the order of the questions."""
    if name in ("_exists", "_isfile"):
        return []
    if name == "async_fetch_all":  # it leaves what it got in the file's cache
        return [bytes(held.cache.data)]
    parts = [value[key] for key in sorted(value, key=lambda key: _url(held, key))] if isinstance(value, dict) else [value]
    return parts if all(isinstance(part, bytes) for part in parts) else []


def _value(held: Any, name: str, args: tuple[Any, ...], answers: list[Answer]) -> Any:
    if name == "_info":
        return dict(answers[0].told.get("info", {}))
    if name in ("_exists", "_isfile"):
        return True
    if name == "_size":
        return answers[0].size
    parts = [answer.data or b"" for answer in answers]
    if name == "async_fetch_all":  # as it leaves a file of the HTTP file system
        from fsspec.caching import AllBytes

        held.size = len(parts[0])
        held.cache = AllBytes(size=held.size, fetcher=None, blocksize=None, data=parts[0])
        return None
    if name == "_cat" and isinstance(args[0], list):
        return {held._strip_protocol(answer.url): part for answer, part in zip(answers, parts, strict=True)}
    return parts[0]
