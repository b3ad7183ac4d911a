"""s3torchconnector: an object's stream and what is told of it, below the readers that its datasets hand to the user's code."""

from __future__ import annotations

import importlib
from typing import Any

from pipefix.hooks import object_answers
from pipefix.hooks.calls import Patches, SampleTimer, hook
from pipefix.hooks.object_answers import Answer

LIBRARY = "s3torchconnector"


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
    from s3torchconnectorclient._mountpoint_s3_client import HeadObjectResult

    client: Any = importlib.import_module("s3torchconnector._s3client._s3client").S3Client
    stream, head = client._get_object_stream, client.head_object

    @hook(timer, patches, client, "_get_object_stream")
    def get_object_stream(self: Any, bucket: str, key: str, start: int | None = None, end: int | None = None) -> Any:
        url, begin = f"s3://{bucket}/{key}", start or 0
        span = () if start is end is None else (start, end)  # older releases know whole objects only

        def ask() -> Answer:
            # Read at once, so that its waiting is seen; a reader reads to the end unless it is left.
            data = b"".join(stream(self, bucket, key, *span))
            return Answer(url, begin + len(data), begin, data, {} if end is None else {"size_unknown": True})

        answer = object_answers.asked_of(LIBRARY, timer, "s3torchconnector.get_object", url, (begin, end), ask)
        return StreamInMemory(answer.data or b"", begin)

    @hook(timer, patches, client, "head_object")
    def head_object(self: Any, bucket: str, key: str) -> Any:
        url = f"s3://{bucket}/{key}"
        answered: list[Any] = []

        def ask() -> Answer:
            value = head(self, bucket, key)
            answered.append(value)
            info = {"etag": value.etag, "size": value.size, "last_modified": value.last_modified}
            return Answer(url, value.size, 0, None, {"info": info})

        info = object_answers.asked_of(LIBRARY, timer, "s3torchconnector.head_object", url, (0, 0), ask, "info").told["info"]
        return answered[0] if answered else HeadObjectResult(info["etag"], info["size"], info["last_modified"], None, None)
