"""Opens the store that a URL names: a folder, or an object store."""

from __future__ import annotations

from pathlib import Path

from pipefix.stores.folder import FolderStore
from pipefix.stores.remote import RemoteStore
from pipefix.stores.store import Store
from pipefix.vocabulary.errors import BadUsage

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "adl", "http", "https")


def open_store(url: str) -> Store:
    """The store at a URL. Nothing is asked of it yet."""
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return FolderStore(Path("/") / rest.lstrip("/"))
    if scheme not in SCHEMES:
        raise BadUsage(
            f"{url} is not in a store that is known.",
            advice=f"Stores are {', '.join(f'{scheme}://' for scheme in ('file', *SCHEMES))}.",
        )
    return RemoteStore(url.rstrip("/"))
