"""What a tier keeps, and that neither its budget nor its checksums are ever passed over."""

from __future__ import annotations

import errno
import gc
import os
import zlib
from unittest import mock

import msgspec
import pytest

from pipefix.stores.opening import open_store
from pipefix.tier.client import CLIENTS, FETCHER, WANTED, Tier, Wanted, is_locked
from pipefix.tier.fetcher import Fetcher, run
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.files import draft_beside


def test_places_and_budgets():
    assert Tier.at("/nvme/tier:200GB").budget == 200 * 10**9
    for wrong in ("/nvme", "/nvme:", "/nvme:much", ":5GB", "/nvme:0"):
        with pytest.raises(BadUsage, match="has no budget"):
            Tier.at(wrong)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache's place in a tier of 100 bytes, over a store with five parts of 40 and one of 15; nothing is fetched by itself."""
    store = open_store(f"file://{tmp_path}/bucket")
    for number in range(5):
        store.put(f"parts/{number}", bytes([number]) * 40)
    store.put("parts/5", bytes(15))
    found = Tier(tmp_path / "tier", 100).of_cache(store.url, "digest")
    monkeypatch.setattr(type(found), "_start", lambda self: None)
    return found


def wanted(number, data=None):
    data = data or bytes([number]) * 40
    return Wanted(f"parts/{number}", 40, [(0, 25, zlib.crc32(data[:25])), (25, 15, zlib.crc32(data[25:]))])


def fetch(tmp_path):
    fetcher = Fetcher(tmp_path / "tier", 100)
    while fetcher.serve():
        assert fetcher.held() <= 100
    return fetcher


def test_parts_come_in_the_order_of_first_need_until_the_budget_is_full(cache, tmp_path):
    smaller = Wanted("parts/5", 15, [(0, 15, zlib.crc32(bytes(15)))])
    assert [cache.part(part) for part in (wanted(3), wanted(1), wanted(0), smaller)] == [None] * 4
    for place, number in enumerate((3, 1, 0, 5)):
        os.utime(cache.path(WANTED) / str(number), ns=(place, place))
    fetcher = fetch(tmp_path)
    assert [cache.arrived(f"parts/{number}") for number in (3, 1, 0, 5)] == [True, True, False, True]
    assert cache.part(wanted(3)).read_bytes() == bytes([3]) * 40 and fetcher.held() == 95 and fetcher.wishes() == []


def test_a_part_that_is_not_what_was_written_never_arrives(cache, tmp_path):
    assert cache.part(wanted(2, b"other bytes" * 4)) is None
    fetcher = fetch(tmp_path)
    assert fetcher.held() == 0 and not cache.arrived("parts/2")


def test_a_part_is_on_the_disk_before_it_has_its_name(cache, tmp_path, monkeypatch):
    """After a power failure a part may have had its length and no bytes: from then on every training ended with it as damaged."""
    real, synced = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((cache.arrived("parts/2"), os.pread(file, 50, 0))) or real(file))
    cache.part(wanted(2))
    fetch(tmp_path)
    assert synced == [(False, bytes([2]) * 40)] and cache.arrived("parts/2")


def test_where_no_room_can_be_taken_beforehand_parts_arrive_all_the_same(cache, tmp_path, monkeypatch):
    """On macOS the fetcher ended at its first part."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    cache.part(wanted(2))
    fetch(tmp_path)
    assert cache.part(wanted(2)).read_bytes() == bytes([2]) * 40


def test_where_no_wish_can_be_written_parts_are_read_in_the_store(cache, monkeypatch):
    """Training ended where the disk of a tier was filled by others, although all could be read in the store."""
    monkeypatch.setattr("pipefix.tier.client.write_whole", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.warns(RuntimeWarning, match="tier is full: parts that are not there yet are read in the store"):
        assert cache.part(wanted(1)) is None
    assert cache.part(wanted(1)) is None


def test_what_is_not_in_the_store_never_arrives(cache, tmp_path):
    cache.part(wanted(9))
    assert fetch(tmp_path).held() == 0


def test_a_wish_that_leads_out_of_the_tier_is_none(cache, tmp_path):
    cache.part(wanted(1))
    for name in ("../x", "parts/../../x", "/x", "origin"):
        (cache.path(WANTED) / "1").write_bytes(msgspec.msgpack.encode(Wanted(name, 0, [])))
        assert fetch(tmp_path).wishes() == []
    assert not (tmp_path / "x").exists() and not (tmp_path / "tier" / "x").exists()


def test_what_a_killed_fetcher_left_goes(cache, tmp_path):
    other = Tier(tmp_path / "tier", 100).of_cache(cache._url, "digest")
    other.part(wanted(1))
    fetch(tmp_path)
    left = draft_beside(cache.path("parts/1"))
    left.write_bytes(bytes(60))
    assert is_locked(tmp_path / "tier" / CLIENTS)
    del other
    gc.collect()
    assert not is_locked(tmp_path / "tier" / CLIENTS), "a reader that was dropped reads no more"
    run(tmp_path / "tier", 100)  # nobody reads from the tier any more, so it ends at once
    assert not left.exists() and cache.arrived("parts/1")
    assert not is_locked(tmp_path / "tier" / FETCHER)


def test_two_jobs_fetch_a_part_once(cache, tmp_path):
    other = Tier(tmp_path / "tier", 100).of_cache(cache._url, "digest")
    cache.part(wanted(1))
    fetch(tmp_path)
    assert other.part(wanted(1)) == cache.part(wanted(1))
    assert Tier(tmp_path / "tier", 100).of_cache(cache._url, "of another manifest").part(wanted(1)) is None


@pytest.mark.parametrize("folder", ["photos", "0123456789abcdef01234567"])
def test_files_of_somebody_else_in_the_same_directory_stay(cache, tmp_path, folder):
    """A tier may be given a directory that holds other things: `photos/wanted/3` was removed as if it were a wish."""
    theirs = [tmp_path / "tier" / folder / name for name in ("wanted/3", "parts/.pipefix-0123456789ab", "parts/huge")]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"theirs" * 100)
    assert cache.part(wanted(1)) is None
    fetcher = fetch(tmp_path)
    fetcher.clear()
    assert [path.read_bytes() for path in theirs] == [b"theirs" * 100] * 3
    assert cache.part(wanted(1)).read_bytes() == bytes([1]) * 40, "what others hold takes nothing of the budget"
