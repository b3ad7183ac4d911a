# ruff: noqa: SIM115, B023, UP020
"""Files: the standard types, timed at the system call, and answered from memory."""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import pathlib
import sys
import tempfile
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.hooks import files
from pipefix.hooks.byte_ranges import ByteRanges
from pipefix.hooks.files import TimedFileIO
from pipefix.hooks.recorded_files import MemoryFile, PartialFile
from pipefix.vocabulary.stage import Stage

TEXT = "erste Zeile\r\nzweite\nünd dritte" * 400
FILES = {"open": "storage", "read": "storage"}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes(TEXT.encode())
    return path


def _read(path, mode="rb", **how):
    with open(path, mode, **how) as file:
        return file.read()


READERS = {
    "whole": lambda path: _read(path),
    "bytes path": lambda path: _read(os.fsencode(path)),
    "unbuffered": lambda path: _read(path, buffering=0),
    "text": lambda path: _read(path, "r", encoding="utf-8"),
    "newline": lambda path: _read(path, "r", encoding="utf-8", newline=""),
    "lines": lambda path: list(open(path, encoding="utf-8")),
    "pathlib": lambda path: path.read_bytes(),
    "pathlib text": lambda path: path.read_text(encoding="utf-8"),
    "io": lambda path: io.open(path, "rb").read(),
    "pieces": lambda path: [piece for file in [open(path, "rb")] for piece in iter(lambda: file.read(1000), b"")],
    "raw pieces": lambda path: [piece for file in [open(path, "rb", 0)] for piece in iter(lambda: file.read(1000), b"")],
    "into": lambda path: (buffer := bytearray(3000), open(path, "rb").readinto(buffer)),
    "seek": lambda path: (
        (file := open(path, "rb")) and (file.seek(-10, 2), file.read(4), file.seek(3), file.read(5), file.tell())[1:]
    ),
    "peek": lambda path: open(path, "rb").peek(10)[:10],
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("reader", READERS)
def test_contract(hooks, path, reader):
    hooks.contract(lambda: READERS[reader](path), "files", ops=FILES)


def test_bytes_are_counted_where_the_system_moves_them(hooks, path):
    hooks.install("files")
    hooks.run(lambda: _read(path))
    assert hooks.timer.bytes_read == path.stat().st_size
    hooks.run(lambda: open(path, "rb", buffering=100).read(1))
    assert hooks.timer.bytes_read == 100


def test_types_and_names_are_the_standard_ones(hooks, path):
    bare = open(path, "rb"), open(path)
    hooks.install("files")
    ours = open(path, "rb"), open(path)
    for own, ours_opened in zip(bare, ours, strict=True):
        assert type(own) is type(ours_opened)
        assert own.name == ours_opened.name
        assert own.mode == ours_opened.mode
        assert own.fileno() != ours_opened.fileno()
    assert isinstance(ours[0].raw, TimedFileIO)
    assert ours[1].encoding == bare[1].encoding
    for file in (*bare, *ours):
        file.close()


@pytest.mark.parametrize(
    "args", [("x", "b"), ("x", "rb", 0, "utf-8"), ("x", "r", 0), ("missing",), (".",), ("x", "rw"), ("x\0",)], ids=str
)
def test_errors_are_the_same(hooks, path, monkeypatch, args):
    monkeypatch.chdir(path.parent)
    (path.parent / "x").write_bytes(b"")

    def error():
        with pytest.raises((OSError, ValueError)) as caught:
            open(*args)
        return type(caught.value), str(caught.value)

    bare = error()
    hooks.install("files")
    assert error() == bare
    assert hooks.run(error) == bare


@pytest.fixture
def theirs(monkeypatch):
    """Somebody's own ``open``, in the place of Python's: paths that it was asked for."""
    paths = []
    before = builtins.open

    def slow(file, *args, **kwargs):
        paths.append(os.fspath(file) if isinstance(file, os.PathLike) else file)
        return before(file, *args, **kwargs)

    for module in (builtins, io):
        monkeypatch.setattr(module, "open", slow)
    return paths


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("reader", ["whole", "unbuffered", "newline", "lines", "pathlib", "seek", "into"])
def test_what_stands_in_for_open_keeps_the_contract(theirs, hooks, path, reader):
    hooks.contract(lambda: READERS[reader](path), "files", ops=FILES)


def test_what_stands_in_for_open_is_called_and_its_time_is_storage(theirs, hooks, path):
    del theirs[:]
    hooks.install("files")
    assert hooks.run(lambda: _read(path)) == TEXT.encode()
    assert theirs == [str(path)]
    assert hooks.timer.bytes_read == path.stat().st_size
    hooks.run(lambda: _read(path), record=True)
    del theirs[:]
    path.rename(path.with_suffix(".away"))
    assert hooks.run(lambda: _read(path, "r", encoding="utf-8", newline=""), replace=[Stage.STORAGE]) == TEXT
    assert theirs == [], "what was recorded is not opened again"


def test_what_it_gives_is_left_as_it_is_where_it_is_no_file(monkeypatch, hooks, path):
    monkeypatch.setattr(builtins, "open", lambda file, mode="r": io.BytesIO(b"from elsewhere"))
    hooks.install("files")
    assert hooks.run(lambda: type(open(path, "rb"))) is io.BytesIO


def test_writing_is_left_alone(hooks, path):
    hooks.install("files")
    with open(path, "wb") as file:
        assert type(file.raw) is io.FileIO
        file.write(b"new")
    with open(path, "r+b") as file:
        assert type(file.raw) is io.FileIO
    assert path.read_bytes() == b"new"


def test_what_was_not_recorded_is_read_and_counted_as_missing(hooks, path, tmp_path):
    (tmp_path / "other").write_bytes(b"abc")
    hooks.install("files")
    hooks.run(lambda: open(path, "rb").read(5000), record=True)

    def all_of_it():
        with open(path, "rb") as file:
            assert type(file.raw) is PartialFile
            return file.read()

    assert hooks.run(all_of_it, replace=[Stage.STORAGE]) == TEXT.encode()
    missed = hooks.timer.misses
    assert missed and 0 < hooks.timer.bytes_read < len(TEXT.encode())
    assert hooks.run(lambda: _read(tmp_path / "other"), replace=[Stage.STORAGE]) == b"abc"
    assert hooks.timer.misses > missed


def test_a_handle_kept_open_is_recorded_and_replayed(hooks, path):
    hooks.install("files")
    data = TEXT.encode()
    with open(path, "rb", 64) as file:

        def part(at):
            file.seek(at)
            return file.read(500)

        assert hooks.run(lambda: part(100), record=True) == data[100:600]
        assert hooks.run(lambda: part(4000), unit=1, record=True) == data[4000:4500]
        assert hooks.run(lambda: part(100), replace=[Stage.STORAGE]) == data[100:600]
        assert "read" not in hooks.charged()
        assert hooks.timer.misses == 0
        assert hooks.run(lambda: part(2000), replace=[Stage.STORAGE]) == data[2000:2500]
        assert hooks.timer.misses > 0


def test_files_that_are_neither_kept_nor_answered_are_read_without_keeping_track(hooks, path, monkeypatch):
    """In an arm without another stage they cost what they cost in training."""
    hooks.install("files")
    hooks.run(path.read_bytes, record=True)
    monkeypatch.setattr(files, "_TELL", None)
    monkeypatch.setattr(files, "note", None)
    assert hooks.run(path.read_bytes, replace=[Stage.AUGMENT]) == path.read_bytes()
    assert hooks.run(lambda: path.open("rb").read(5), replace=[Stage.DECODE]) == path.read_bytes()[:5]


@pytest.mark.parametrize("refused", [False, True])
def test_a_replayed_file_still_has_a_descriptor(hooks, path, monkeypatch, refused):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")  # as vm.memfd_noexec=2 has it

    if refused:
        monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    hooks.install("files")
    hooks.run(lambda: _read(path), record=True)

    def mapped():
        with open(path, "rb") as file:
            assert type(file.raw) is MemoryFile
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return view[:]

    assert hooks.run(mapped, replace=[Stage.STORAGE]) == TEXT.encode()
    assert hooks.timer.misses == (0 if hasattr(os, "memfd_create") and not refused else 1)


def test_reads_inside_a_replaced_decode_are_still_made(hooks, path):
    hooks.install("files")

    def decode():
        return hooks.timer.timed_call(Stage.DECODE, "parse", lambda: _read(path).upper())

    bare = decode()
    assert hooks.run(decode, record=True) == bare
    assert hooks.run(decode, replace=[Stage.DECODE]) == bare
    assert hooks.charged() == {"read": "storage"}
    assert hooks.timer.bytes_read == len(bare)
    assert hooks.run(decode, replace=[Stage.DECODE, Stage.STORAGE]) == bare
    assert hooks.charged() == {}


def test_a_file_that_the_sample_made_and_removed_is_not_missed_in_a_replaced_decode(hooks, tmp_path):
    """Under another name each time: the decode that was answered raised FileNotFoundError."""
    hooks.install("files")

    def sample():
        with tempfile.NamedTemporaryFile(dir=tmp_path) as file:
            file.write(b"abc")
            file.flush()
            return hooks.timer.timed_call(Stage.DECODE, "parse", lambda: _read(file.name).upper())

    assert hooks.run(sample, record=True) == hooks.run(sample, replace=[Stage.DECODE]) == b"ABC"


def test_other_threads_are_timed_apart(hooks, path):
    hooks.install("files")

    def beside():
        thread = threading.Thread(target=_read, args=(path,))
        thread.start()
        thread.join()

    hooks.run(beside)
    assert hooks.charged() == {}
    assert sum(hooks.timer.foreign.values()) > 0


@pytest.mark.parametrize(
    ("call", "op"),
    [(lambda path: os.stat(path), "os.stat"), (lambda path: os.listdir(path.parent), "os.listdir"), (pathlib.Path.stat, "os.stat")],
)
def test_os_contract(hooks, path, call, op):
    hooks.contract(lambda: call(path), "files", "os_calls", "pathlib", ops={op: "storage"})


def test_descriptor_reads(hooks, path):
    def read():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            parts = os.read(descriptor, 10), os.read(descriptor, 7), os.pread(descriptor, 4, 100)
            buffer = bytearray(5)
            os.readv(descriptor, [buffer])
            return (*parts, bytes(buffer))
        finally:
            os.close(descriptor)

    ops = {"os.open": "storage", "os.read": "storage", "os.pread": "storage", "os.readv": "storage"}
    bare = read()
    hooks.install("files", "os_calls")
    assert hooks.run(read) == bare
    assert hooks.charged() == ops
    assert hooks.timer.bytes_read == 26
    assert hooks.run(read, record=True) == bare
    assert hooks.run(read, replace=[Stage.STORAGE]) == bare
    assert hooks.charged() == {"os.open": "storage"}
    assert hooks.timer.misses == 0


def test_a_descriptor_read_of_which_a_part_is_recorded_is_made(hooks, path):
    """It was answered with that part, as no file answers in its middle: samples that read a window at random came short."""
    descriptor, buffer = os.open(path, os.O_RDONLY), bytearray(40)
    hooks.install("files", "os_calls")
    hooks.run(lambda: os.pread(descriptor, 40, 0), record=True)
    for read in (lambda: os.pread(descriptor, 40, 20), lambda: buffer[: os.preadv(descriptor, [buffer], 20)]):
        assert hooks.run(read, replace=[Stage.STORAGE]) == TEXT.encode()[20:60]
    assert hooks.timer.misses == 2
    end = len(TEXT.encode()) - 5
    hooks.run(lambda: os.pread(descriptor, 40, end), record=True)
    assert hooks.run(lambda: os.pread(descriptor, 40, end), replace=[Stage.STORAGE]) == TEXT.encode()[-5:]
    assert hooks.timer.misses == 2
    os.close(descriptor)


def test_pipes_are_never_answered_from_memory(hooks):
    hooks.install("files", "os_calls")

    def through_a_pipe():
        reader, writer = os.pipe()
        os.write(writer, b"now")
        os.close(writer)
        try:
            return os.read(reader, 10)
        finally:
            os.close(reader)

    for _ in range(2):
        assert hooks.run(through_a_pipe, record=True) == b"now"
        assert hooks.run(through_a_pipe, replace=[Stage.STORAGE]) == b"now"


@pytest.mark.skipif(not os.path.exists("/proc/version"), reason="of Linux")
def test_what_the_system_makes_up_when_it_is_read_is_read_again(hooks):
    """Such files have no size: of a sample that looks at the memory left (psutil, in /proc/meminfo) they were answered as empty."""

    def by_descriptor(place):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            return os.read(descriptor, 1000)
        finally:
            os.close(descriptor)

    hooks.install("files", "os_calls")
    for read in (_read, by_descriptor):
        bare = read("/proc/version")
        assert bare and hooks.run(lambda: read("/proc/version"), record=True) == bare
        assert hooks.run(lambda: read("/proc/version"), replace=[Stage.STORAGE]) == bare


def test_functions_stand_where_libraries_look_up_what_they_can_do(hooks):
    """A library that is imported meanwhile (shutil, say) falls back for good where a function cannot do what its original can."""
    before = len(os.supports_dir_fd)
    hooks.install("files", "os_calls")
    assert {os.stat, os.open} <= os.supports_dir_fd and os.scandir in os.supports_fd and os.stat in os.supports_follow_symlinks
    hooks.undo()
    assert len(os.supports_dir_fd) == before


# -- extents ----------------------------------------------------------------------------------------------------------

DATA = bytes(range(256)) * 8


@given(ranges=st.lists(st.tuples(st.integers(0, 2100), st.integers(0, 700)), max_size=12))
def test_extents_hold_what_was_put(ranges):
    extents = ByteRanges()
    known = [False] * len(DATA)
    for offset, count in ranges:
        extents.put("f", offset, DATA[offset : offset + count], len(DATA))
        known[offset : offset + count] = [True] * len(known[offset : offset + count])
    assert extents.nbytes == sum(known)
    for at in range(0, len(DATA), 37):
        held = extents.get("f", at, 300)
        if not known[at]:
            assert held is None
        else:
            end = next((i for i in range(at, len(DATA)) if not known[i]), len(DATA))
            assert held == DATA[at : min(at + 300, end)]
    if ranges:
        assert extents.whole("f") == (DATA if all(known) else None)
        assert extents.get("f", len(DATA), 10) == b""


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(0, 900)),
            st.tuples(st.just("seek"), st.integers(0, 2500)),
            st.tuples(st.just("readline"), st.just(-1)),
            st.tuples(st.just("read1"), st.integers(1, 900)),
            st.tuples(st.just("read"), st.just(-1)),
        ),
        max_size=8,
    ),
    others=st.lists(st.tuples(st.just("read"), st.integers(0, 900)), max_size=4),
    buffering=st.sampled_from([0, 16, 100, -1]),
)
def test_any_way_of_reading_replays(make_hooks, tmp_path_factory, steps, others, buffering):
    path = tmp_path_factory.mktemp("x") / "data"
    path.write_bytes(DATA)

    def read(steps):
        with open(path, "rb", buffering) as file:
            return [getattr(file, name if buffering or name != "read1" else "read")(count) for name, count in steps]

    bare, other_bytes = read(steps), read(others)
    hooks = make_hooks()
    hooks.install("files")
    try:
        assert hooks.run(lambda: read(steps)) == bare
        assert hooks.run(lambda: read(steps), record=True) == bare
        replayed = hooks.run(lambda: read(steps), replace=[Stage.STORAGE])
        assert replayed == bare
        assert hooks.run(lambda: read(others), replace=[Stage.STORAGE]) == other_bytes
    finally:
        hooks.undo()


def test_extents_keep_to_their_limit():
    extents = ByteRanges(limit=10)
    extents.put("a", 0, b"12345", 5)
    extents.put("b", 0, b"1234567", 7)
    assert extents.nbytes == 5 and extents.overflowed
    assert extents.whole("a") == b"12345" and not extents.knows("b")
    extents.put("a", 0, b"123", 3)
    assert extents.nbytes == 3


def test_what_an_import_reads_is_no_sample(hooks, path, tmp_path, monkeypatch):
    """Libraries import parts of themselves with the first sample: neither bytes of it, nor files that a recording would hold."""
    (tmp_path / "imported_late.py").write_text("VALUE = 'x' * 3\n" + "# a long remark\n" * 500)
    monkeypatch.syspath_prepend(str(tmp_path))

    def sample() -> bytes:
        import imported_late

        return imported_late.VALUE.encode() + _read(path)

    hooks.install("files")
    for record in (False, True):
        for _ in range(2):  # from the source, then from what was compiled
            sys.modules.pop("imported_late", None)
            assert hooks.run(sample, record=record) == b"xxx" + TEXT.encode()
            assert hooks.timer.bytes_read == len(TEXT.encode()) and hooks.timer.calls[hooks.timer.op_id(Stage.STORAGE, "open")] == 1
    assert hooks.store.files.nbytes == len(TEXT.encode())
