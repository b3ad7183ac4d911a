"""What answers at an address, or lies in a file, may be anything: it is shown, or refused in a sentence, and never waited for."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.cli.main import main
from pipefix.vocabulary.errors import UnreadableFile
from pipefix.watching import follow, sentences, window
from pipefix.watching.drift import LAST, Drift
from pipefix.watching.window import Window
from tests.watching.streams import Job


def shown(described: Window) -> None:
    """Do all that is done with a window."""
    assert [*sentences.state(described), sentences.line(described)]
    drift = Drift()
    for number in range(LAST + 1):
        for notice in drift.feed(msgspec.structs.replace(described, number=number)):
            assert notice.sentence
    assert window.decode(window.encode(described), origin="here") == described


def shown_or_refused(read: Callable[[], Window]) -> None:
    with contextlib.suppress(UnreadableFile):
        shown(read())


JSON = st.recursive(
    st.none() | st.booleans() | st.sampled_from([-1, 0, 2**53, 2**63, 10**30, 1e300, -1e300, 5e-324, 1e12]) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["s", "batches", "p50"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(Window.__struct_fields__), JSON, max_size=3))
def test_lines_with_figures_that_cannot_be(changed: dict[str, Any]) -> None:
    (first,) = Job(1, windows=1)
    line = json.dumps({**msgspec.to_builtins(first), **changed}).encode()
    shown_or_refused(lambda: window.decode(line, origin="watch.jsonl"))


def test_a_version_of_many_digits() -> None:
    with pytest.raises(UnreadableFile, match="newer pipefix") as refused:
        window.decode(b'{"format": "pipefix.watch/' + b"9" * 10_000 + b'"}', origin="watch.jsonl")
    assert len(str(refused.value)) < 300


@pytest.fixture
def serve() -> Iterator[Callable[[list[bytes]], str]]:
    """An address that answers every request with these bytes, again and again the last of them."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def answer(pieces: list[bytes]) -> None:
        while not ended.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(60)
                try:
                    connection.recv(65_536)
                    for piece in pieces:
                        connection.sendall(piece)
                    while pieces[-1] and not ended.wait(0.01):
                        connection.sendall(pieces[-1])
                except OSError:
                    continue

    def start(pieces: list[bytes]) -> str:
        threading.Thread(target=answer, args=(pieces,), daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"

    yield start
    ended.set()
    listening.close()


OK = b"HTTP/1.0 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([b"SSH-2.0-OpenSSH\r\n", b""], "does not answer"),
        ([b"\x00\xff\r\n\r\n", b""], "does not answer"),
        ([b"HTTP/1.0 200 OK\r\n" + b"a: b\r\n" * 1000, b""], "does not answer"),
        ([b"HTTP/1.0 200 OK\r\na: " + b"b" * 100_000, b""], "does not answer"),
        ([OK, b"pipefix_window 1\n" * 10_000], "more than 1,000,000 bytes"),
        ([OK, b"#"], "timed out"),
        ([OK, b"<html>\xff</html>", b""], "is not what pipefix.watch writes"),
        ([OK, b'{"format": "pipefix.watch/1", "time": 1e300, "number": 1, "seconds": 1}', b""], "damaged"),
    ],
)
def test_answers_that_are_none(
    answer: list[bytes], says: str, serve: Callable[[list[bytes]], str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(follow, "_TIMEOUT", 0.5 if "timed" in says else 60.0)
    assert main(["watch", serve(answer), "--once"]) == 4
    output = capsys.readouterr()
    assert says in output.err
    assert output.out == ""


@pytest.mark.parametrize("content", [b"{" * 2_000_000, b"\x00" * 2_000_000, b"[" * 100_000 + b"\n"])
def test_lines_without_end(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "watch.jsonl"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match=r"is not what pipefix\.watch writes"):
        list(follow.follow(str(path), once=True))


@pytest.mark.parametrize("path", ["/dev/zero", "a\0b", "/proc/self/mem"])
@pytest.mark.parametrize("flag", [[], ["--baseline"]])
def test_files_that_are_none(path: str, flag: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "watch.jsonl"
    good.write_bytes(b"".join(map(window.encode, Job(1, windows=3))))
    assert main(["watch", *([str(good), *flag] if flag else []), path, "--once"]) == 4
    assert "bug" not in capsys.readouterr().err
