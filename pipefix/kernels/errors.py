"""The errors of kernels: a picture that cannot be decoded as asked, a request that does not fit."""

from __future__ import annotations

REASONS = ("fine", "not-jpeg", "truncated", "corrupt", "unsupported", "too-large", "no-memory", "bad-request")
"""In the order of the native code's own list."""

_SENTENCES = {
    "not-jpeg": "This is not a JPEG",
    "truncated": "The JPEG is cut off",
    "corrupt": "The JPEG is damaged",
    "unsupported": "The JPEG is of a kind that this kernel leaves to others",
    "too-large": "The JPEG is too large to be believed",
    "no-memory": "There is not enough memory to decode the JPEG",
}


class BadPicture(ValueError):
    """A picture that cannot be decoded as it should be. ``reason`` is one of `REASONS`; nothing useful was written."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{_SENTENCES[reason]}: {detail}.")
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[BadPicture], tuple[str, str]]:
        return type(self), (self.reason, self.detail)


class BadRequest(ValueError):
    """What was asked for does not fit the picture or the buffer."""
