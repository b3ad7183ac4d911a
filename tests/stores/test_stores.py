"""What any store promises, over a folder; object stores are tried where obstore is there."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import pickle
from pathlib import Path
from unittest import mock

import pytest

from pipefix.stores import helper_process
from pipefix.stores.folder import FolderStore
from pipefix.stores.opening import open_store
from pipefix.stores.remote import RemoteStore
from pipefix.stores.store import NoSuchObject, Span, is_store
from pipefix.vocabulary.errors import BadUsage, MissingExtra, UnreadableFile


@pytest.fixture
def store(tmp_path):
    return open_store(f"file://{tmp_path}/bucket")


def test_objects_come_back(store, tmp_path):
    (tmp_path / "local").write_bytes(b"from a file")
    store.put("parts/a", b"0123456789")
    store.put("b", tmp_path / "local")
    assert store.get("parts/a") == b"0123456789" and store.get("b") == b"from a file"
    assert store.ranges([Span("parts/a", 2, 3), Span("b", 5, 100), Span("parts/a", 0, 0)]) == [b"234", b"a file", b""]
    assert store.list() == {"parts/a": 10, "b": 11}


def test_only_the_first_puts_what_must_be_absent(store):
    assert store.put("manifest.json", b"mine", if_absent=True) and not store.put("manifest.json", b"yours", if_absent=True)
    assert store.get("manifest.json") == b"mine" and store.list() == {"manifest.json": 4}


def test_a_share_without_links_takes_what_must_be_absent(store, monkeypatch):
    """All of a cache was brought to a share of Windows or a bucket that is mounted, and its manifest could not be."""
    monkeypatch.setattr(os, "link", mock.Mock(side_effect=OSError(errno.EOPNOTSUPP, "Operation not supported")))
    test_only_the_first_puts_what_must_be_absent(store)


def test_what_is_not_there(store):
    with pytest.raises(NoSuchObject):
        store.get("nothing")
    with pytest.raises(NoSuchObject):
        store.ranges([Span("nothing", 0, 1)])
    assert store.list() == {}


def test_every_request_is_counted(store):
    store.put("a", b"0123456789")
    store.get("a")
    store.ranges([Span("a", 0, 4), Span("a", 6, 4)])
    store.list()
    assert store.ledger.requests == {"put": 1, "get": 1, "range": 2, "list": 1}
    assert (store.ledger.sent, store.ledger.received) == (10, 18)


def test_what_is_removed_while_a_folder_is_listed_is_left_out(tmp_path, monkeypatch):
    """Another program's temporary files end at any moment."""
    store, scandir = FolderStore(tmp_path), os.scandir
    for name in ("index/kept", "index/gone", "parts/gone", "kept"):
        store.put(name, b"x")

    def as_it_was(folder):
        entries = list(scandir(folder))
        (tmp_path / "index" / "gone").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (tmp_path / "parts" / "gone").unlink()
            (tmp_path / "parts").rmdir()
        return entries

    monkeypatch.setattr(os, "scandir", as_it_was)
    assert store.list() == {"index/kept": 1, "kept": 1}


def test_a_folder_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnreadableFile, match="cannot be reached"):
        FolderStore(tmp_path / "file").put("a", b"")


@pytest.mark.parametrize(
    ("place", "far"), [("s3://b/c", True), ("file:///x", True), ("cache", False), ("/a/b://c", False), (None, False)]
)
def test_which_places_are_stores(place, far):
    assert is_store(place) == far


def test_a_url_that_was_made_a_path_is_refused() -> None:
    """pathlib takes one slash from it: the cache went into a folder called s3: beside the program."""
    with pytest.raises(BadUsage, match="s3:/bucket/cache was a URL until it was made a path"):
        is_store(Path("s3://bucket/cache"))
    assert not is_store(Path("folder/cache"))


def test_a_scheme_that_nobody_knows():
    with pytest.raises(BadUsage, match="gopher://x is not in a store that is known"):
        open_store("gopher://x")


def test_without_obstore_the_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs the package 'obstore'") as missing:
        open_store("s3://bucket/cache")
    assert missing.value.exit_code == 5 and missing.value.advice == "Install it with: pip install obstore"


def test_an_object_store_through_its_process(tmp_path):
    pytest.importorskip("obstore", reason="the extra remote is not installed")
    (tmp_path / "bucket").mkdir()
    store = RemoteStore(f"file://{tmp_path}/bucket")
    store.put("parts/a", b"0123456789")
    assert store.ranges([Span("parts/a", 2, 3)] * 100) == [b"234"] * 100
    assert store.put("m", b"mine", if_absent=True) and not store.put("m", b"yours", if_absent=True) and store.get("m") == b"mine"
    assert store.list() == {"parts/a": 10, "m": 4}
    with pytest.raises(NoSuchObject):
        store.get("nothing")
    assert pickle.loads(pickle.dumps(store)).get("m") == b"mine"


@pytest.mark.parametrize("name", ["run#3", "run?", "100%23"])
def test_a_bucket_takes_names_as_they_are_written(name):
    """A cache for ``s3://bucket/run#3`` was put below ``run``, where that for ``run#4`` was found as well."""
    pytest.importorskip("obstore", reason="the extra remote is not installed")
    asked = helper_process._Asked(f"s3://bucket/{name}")
    assert asked._store.prefix == name
