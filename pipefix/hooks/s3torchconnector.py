"""s3torchconnector: an object's stream and what is told of it, below the readers that its datasets hand to the user's code."""

from __future__ import annotations

import functools
from typing import Any

from pipefix.hooks import objects
from pipefix.hooks.objects import Answer
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.stage import Stage

LIBRARY = "s3torchconnector"

_STORAGE = Stage.STORAGE
_CLIENT = "s3torchconnector._s3client._s3client"


class StreamInMemory:
    """The parts of an object, or of a range of it."""

    def __init__(self, data: bytes, begin: int) -> None:
        self._parts = iter([data] if data else [])
        self._at, self._length = begin, len(data)

    def __iter__(self) -> StreamInMemory:
        return self

    def __next__(self) -> bytes:
        part = next(self._parts)
        self._at += self._length
        return part

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        """Nothing is open."""


def install(timer: SampleTimer, patches: Patches) -> None:
    import importlib

    client: Any = importlib.import_module(_CLIENT).S3Client
    stream, head = client._get_object_stream, client.head_object

    def read_whole(self: Any, bucket: str, key: str, start: int | None, end: int | None) -> StreamInMemory:
        data = b"".join(stream(self, bucket, key, start, end))
        timer.bytes_read += len(data)
        return StreamInMemory(data, start or 0)

    @functools.wraps(stream)
    def get_object_stream(self: Any, bucket: str, key: str, start: int | None = None, end: int | None = None) -> Any:
        if not timer.live:
            return stream(self, bucket, key, start, end)
        # Read at once, so that its waiting is seen; a reader reads to the end unless it is left.
        url, begin = f"s3://{bucket}/{key}", start or 0
        objects.noted(timer, url)
        found = objects.known(timer, url, begin, end)
        if found is not None:
            return StreamInMemory(found.data or b"", begin)
        value = timer.timed_call(
            _STORAGE, "s3torchconnector.get_object", read_whole, (self, bucket, key, start, end), replayable=False
        )
        if objects.keeper(timer) is not None:
            data = b"".join(value)
            told = {} if end is None else {"size_unknown": True}
            objects.keep(timer, Answer(url, begin + len(data), begin, data, told), LIBRARY)
            return StreamInMemory(data, begin)
        return value

    @functools.wraps(head)
    def head_object(self: Any, bucket: str, key: str) -> Any:
        if not timer.live:
            return head(self, bucket, key)
        url = f"s3://{bucket}/{key}"
        found = objects.known(timer, url, 0, 0)
        if found is not None and "info" in found.told:
            told = found.told["info"]
            return _result_of(told["etag"], told["size"], told["last_modified"])
        value = timer.timed_call(_STORAGE, "s3torchconnector.head_object", head, (self, bucket, key), replayable=False)
        info = {"etag": value.etag, "size": value.size, "last_modified": value.last_modified}
        objects.keep(timer, Answer(url, value.size, 0, None, {"info": info}), LIBRARY)
        return value

    patches.replace(client, "_get_object_stream", get_object_stream)
    patches.replace(client, "head_object", head_object)


def _result_of(etag: str, size: int, changed: int) -> Any:
    from s3torchconnectorclient._mountpoint_s3_client import HeadObjectResult

    return HeadObjectResult(etag, size, changed, None, None)
