"""Datasets that read objects over the network: stored under their URLs, and answered from the cache without a request."""

from __future__ import annotations

import json
import pickle
import urllib.error
import urllib.request
import warnings

import pytest

from pipefix.caches.dataset import CachedDataset
from pipefix.caches.source_files import any_object_changed
from pipefix.caches.verify import verify
from pipefix.caches.writer import Facts, read_facts
from pipefix.hooks.object_answers import Answer, key_of, mark_of, span
from tests.caches.far import WAYS, Far, Store, by_urlopen


@pytest.fixture
def store():
    objects = {f"/data/{index}": bytes((index * 7 + at) % 251 for at in range(200)) for index in range(12)}
    with Store(objects).served() as running:
        yield running


def urls(store):
    return [f"{store.url}/data/{index}" for index in range(12)]


@pytest.mark.parametrize("client", WAYS)
def test_the_same_without_a_request(store, make, client):
    dataset = Far(urls(store), client)
    expected = [Far(urls(store), client)[index] for index in range(12)]
    done = make(dataset, "source")
    assert done.unseen_bytes == 0
    cached = CachedDataset(done.folder, dataset=Far(urls(store), client))
    store.asked.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        before = cached.misses
        assert [cached[index] for index in range(12)] == expected
    assert cached.misses == before and store.asked == []


def test_objects_are_stored_under_their_urls_with_their_etag(store, make):
    done = make(Far(urls(store), "urlopen"), "source")
    cached = CachedDataset(done.folder)
    assert cached.files(3) == {f"{store.url}/data/3": store.objects["/data/3"]}
    assert (done.manifest.source.files, done.manifest.source.bytes, done.manifest.source.root) == (12, 12 * 200, None)
    facts = read_facts(done.folder / "index" / "00000.facts")
    assert {name: size for name, size, _ in facts.files} == dict.fromkeys(urls(store), 200)
    assert len({mark for _, _, mark in facts.files}) == 12
    checked = verify(done.folder)
    assert checked.sound and (checked.missing_count, checked.far_count) == (0, 12)


def test_nothing_secret_is_stored(store, make):
    done = make(Far(urls(store), "a range"), "source", name="ranges")
    signed = make(Far([f"{url}?X-Amz-Signature=secret&X-Amz-Date=1" for url in urls(store)], "requests"), "source", name="signed")
    moved = make(Far(urls(store), "redirection"), "source", name="moved")
    for converted in (done, signed, moved):
        assert all(b"secret" not in path.read_bytes() for path in converted.folder.rglob("*") if path.is_file())
    again = Far([f"{url}?X-Amz-Signature=other&X-Amz-Date=2" for url in urls(store)], "requests")
    store.asked.clear()
    assert CachedDataset(signed.folder, dataset=again)[4][0] == store.objects["/data/4"] and store.asked == []


def test_two_conversions_give_the_same_bytes(store, make):
    alone, by_two = (make(Far(urls(store), "session"), "source", name=f"by-{workers}", workers=workers) for workers in (0, 2))
    files = [path.relative_to(alone.folder) for path in sorted(alone.folder.glob("parts/*"))]
    assert files and all((alone.folder / file).read_bytes() == (by_two.folder / file).read_bytes() for file in files)


class MadeLate(Far):
    """Its client is made by the first sample of each process, which decodes something on the way, as botocore does."""

    def __getitem__(self, index):
        if self.session is None:
            self.session = json.loads('{"client": 1}')
        return by_urlopen(self, self.urls[index])


def test_a_client_that_each_process_makes_for_itself(store, make):
    done = make(MadeLate(urls(store), ""), "source", workers=2)
    assert CachedDataset(done.folder).files(3) == {f"{store.url}/data/3": store.objects["/data/3"]}


def test_what_the_cache_lacks_is_asked_of_the_store(store, make):
    done = make(Far(urls(store), "requests"), "source")
    reversed_urls = Far(urls(store)[::-1], "requests")
    cached = CachedDataset(done.folder, dataset=reversed_urls)
    with pytest.warns(RuntimeWarning, match="read what the cache does not hold"):
        assert cached[1] == reversed_urls[1]
    assert cached.misses > 0


def test_an_object_that_is_not_there_stays_missing(store, make):
    del store.objects["/data/5"]
    done = make(Far(urls(store), "urlopen"), "source", on_bad="skip")
    assert done.manifest.parts[0].bad == [5]
    cached = CachedDataset(done.folder, dataset=Far(urls(store), "urlopen"))
    assert cached[5] == Far(urls(store), "urlopen")[6]


def test_a_changed_object_is_made_anew(store, make):
    done = make(Far(urls(store), "urlopen"), "source")
    assert make(Far(urls(store), "urlopen"), "source").changed == ()
    store.objects["/data/7"] = bytes(200)
    assert make(Far(urls(store), "urlopen"), "source").changed == (0,)
    make(Far(urls(store), "urlopen"), "source", update=True)
    assert CachedDataset(done.folder, dataset=Far(urls(store), "urlopen"))[7][1] == bytes(190)


def test_seams_of_clients_are_put_back(store, make):
    before = urllib.request.OpenerDirector.open
    cached = CachedDataset(make(Far(urls(store), "urlopen"), "source").folder, dataset=Far(urls(store), "urlopen"))
    cached[0]
    assert urllib.request.OpenerDirector.open is not before
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{store.url}/nothing")
    cached.close()
    assert urllib.request.OpenerDirector.open is before and pickle.loads(pickle.dumps(cached))[0] == cached[0]


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://me:pass@host/x?v=2#part", "https://host/x?v=2"),
        ("https://b.s3.amazonaws.com/k?X-Amz-Signature=a&X-Amz-Date=b&versionId=3", "https://b.s3.amazonaws.com/k?versionId=3"),
        ("https://h/k?Signature=a&Expires=9&AWSAccessKeyId=i&id=4", "https://h/k?id=4"),
        ("https://h/k?expires=9&key=i", "https://h/k?expires=9&key=i"),
        ("https://a.blob/c/k?sv=1&se=2&sig=3&sp=r&page=4", "https://a.blob/c/k?page=4"),
        ("https://h/a%20b?q=a%20b", "https://h/a%20b?q=a%20b"),
        ("s3://bucket/take#1.jpg", "s3://bucket/take#1.jpg"),
        ("sftp://me:pass@host/why?token=3", "sftp://host/why?token=3"),
    ],
)
def test_names_of_objects(url, key):
    assert key_of(url) == key == key_of(key)


def test_secrets_in_a_url_are_digested():
    key, same_key = key_of("https://h/k?token=abc&n=1"), key_of("https://h/k?token=xyz&n=1")
    assert "abc" not in key and key != same_key and key.endswith("&n=1")


def test_ranges_and_marks():
    assert [span(header) for header in (None, "bytes=3-9", "bytes=3-", "bytes=-4", "bytes=1-2,5-6", "bytes=-")] == [
        (0, None), (3, 10), (3, None), (None, 4), None, None,
    ]  # fmt: skip
    assert mark_of('W/"a"') == mark_of('"a"') == mark_of("a") != mark_of("b") and mark_of("") == 1
    assert Answer("u", 1, 0, b"", {"headers": {"etag": '"a"'}}).mark == Answer("u", 1, 0, None, {"info": {"e_tag": "a"}}).mark


def test_an_object_that_cannot_be_asked_for_counts_as_unchanged():
    """A blank in its URL, which other clients write as %20, ended every later `convert`."""
    sizes = dict.fromkeys(("records", "bytes", "index_bytes", "index_crc"), 1)
    assert not any_object_changed(Facts(start=0, stop=1, files=[("http://127.0.0.1:9/a b.jpg", 1, 1)], **sizes))
