"""A test of the gate says what is true on any machine: it reads no clock, counts no cores, and waits for nothing in seconds.

Tests that do so already are debts: ``clock_debts.txt`` has a line ``FILE: HOW MANY PLACES`` for each file. A count may only fall,
and a file that is not there may have none. A line that patches a clock, or calls a made-up one, says ``# fake clock``.

    python tests/architecture/test_gate_has_no_clock.py            # every place
    python tests/architecture/test_gate_has_no_clock.py --write    # write down what has become less
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
DEBTS = TESTS / "architecture" / "clock_debts.txt"
ELSEWHERE = ("system/", "frameworks/", Path(__file__).relative_to(TESTS).as_posix())
"""No part of the gate, and this file with its made-up sources. Modules marked ``gpu`` as a whole are no part of it either."""
CLOCKS = {"perf_counter", "monotonic", "process_time", "thread_time", "clock_gettime"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
MACHINE = {"getrusage", "cpu_count", "process_cpu_count", "sched_getaffinity", "memory_info"}
READ = CLOCKS | MACHINE
WAITS = {"join", "wait", "wait_for", "acquire", "poll", "result", "timeout", "sleep"}
"""Calls that take seconds as a number; `timeout` is pytest's mark."""
SHORT = 60
LONGEST_BUDGET = 100_000
"""A larger number is bytes."""
FAKE = "# fake clock"
CODE = re.compile(r"\b(" + "|".join(sorted(READ | WAITS | {"time"})) + r")\(|\b(timeout|budget)\s*=")
HOW = f"Patch the clock ({FAKE}), wait for an event, count rounds; or move it to measured/ or tests/system/."


def places(source: str) -> list[tuple[int, str]]:
    """Line and words of each place, in the order of the lines."""
    tree = ast.parse(source)
    lines = source.splitlines()
    numbers = {
        target.id: line.value.value
        for line in tree.body
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant) and type(line.value.value) in (int, float)
        for target in line.targets
        if isinstance(target, ast.Name)
    }
    found = {(line, words) for node in ast.walk(tree) for line, words in clocks_of(node, numbers) if FAKE not in lines[line - 1]}
    return sorted(found)


def clocks_of(node: ast.AST, numbers: dict[str, float]) -> Iterator[tuple[int, str]]:
    if isinstance(node, (ast.Attribute, ast.Name)):
        last = node.attr if isinstance(node, ast.Attribute) else node.id
        if last in READ or (last in ("time", "time_ns") and ast.unparse(node).startswith("time.")):
            yield node.end_lineno or node.lineno, ast.unparse(node)
    elif isinstance(node, ast.ImportFrom) and node.module == "time":
        yield from ((node.lineno, f"from time import {alias.name}") for alias in node.names if alias.name in ("time", "time_ns"))
    elif isinstance(node, ast.Call):
        yield from waits_of(node, numbers)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.search(node.value):
        try:  # what another process is to run
            yield from ((node.lineno, f"in code: {words}") for _, words in places(textwrap.dedent(node.value)))
        except SyntaxError:
            pass


def waits_of(call: ast.Call, numbers: dict[str, float]) -> Iterator[tuple[int, str]]:
    def seconds(value: ast.expr, below: float = SHORT) -> bool:
        number = numbers.get(value.id) if isinstance(value, ast.Name) else getattr(value, "value", None)
        return type(number) in (int, float) and 0 < number < below

    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    line = function.end_lineno or call.lineno
    arguments = call.args[1:] if name in ("block", "wait_for") else call.args
    if name == "sleep" or (name in WAITS | {"block"} and any(map(seconds, arguments))):
        yield line, f"{name}({', '.join(map(ast.unparse, call.args))})"
    for keyword in call.keywords:
        short = keyword.arg == "timeout" and seconds(keyword.value)
        if short or (keyword.arg == "budget" and seconds(keyword.value, LONGEST_BUDGET)):
            yield keyword.value.lineno, f"{keyword.arg}={ast.unparse(keyword.value)}"


def marked_gpu(source: str) -> bool:
    marks = [
        line for line in ast.parse(source).body if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "pytestmark"
    ]
    return any("mark.gpu" in ast.unparse(mark.value) for mark in marks)


@cache
def of_the_gate() -> dict[str, list[tuple[int, str]]]:
    """The places of each file that has any."""
    found = {}
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS).as_posix()
        if not name.startswith(ELSEWHERE):
            source = path.read_text(encoding="utf-8")
            if "mark.gpu" not in source or not marked_gpu(source):
                found[name] = places(source)
    return {name: some for name, some in found.items() if some}


def owed() -> dict[str, int]:
    lines = DEBTS.read_text(encoding="utf-8").splitlines() if DEBTS.exists() else []
    return {name: int(count) for name, count in (line.rsplit(": ", 1) for line in lines)}


def refused(found: dict[str, list[tuple[int, str]]], debts: dict[str, int]) -> list[str]:
    """Every place of the files that have more than they owe."""
    return [
        f"{name}:{line} {words}"
        for name, some in found.items()
        if len(some) > debts.get(name, 0)
        for line, words in [*some, ("", f"({len(some)} places, {debts.get(name, 0)} in {DEBTS.name})")]
    ]


def write() -> str | None:
    """Write the list anew, or say why not. With no list there all that is found is written."""
    debts, counts = owed(), {name: len(some) for name, some in of_the_gate().items()}
    more = {name for name, count in counts.items() if count > debts.get(name, 0)}
    # A file may take over what a file of the same room that is gone (renamed, divided) no longer owes.
    gone = {room(name) for name in debts.keys() - counts.keys() if not (TESTS / name).exists()}
    moved = {name for name in more if name not in debts and room(name) in gone}
    fewer = sum(counts.values()) <= sum(debts.values())
    if DEBTS.exists() and (more - moved or not fewer):
        return f"A count may only fall. {HOW}\n" + "\n".join(refused(of_the_gate(), debts))
    DEBTS.write_text("".join(f"{name}: {count}\n" for name, count in sorted(counts.items())), encoding="utf-8")
    return None


def room(name: str) -> str:
    return name.rpartition("/")[0]


def test_no_test_of_the_gate_has_a_new_clock() -> None:
    assert not refused(of_the_gate(), owed()), HOW


def test_the_list_of_debts_says_what_is_still_owed() -> None:
    less = {name: count for name, count in owed().items() if len(of_the_gate().get(name, ())) < count}
    assert not less, "fewer than that are left, write it down: python tests/architecture/test_gate_has_no_clock.py --write"


def test_clocks_and_waits_are_found() -> None:
    sources = {
        "began = time.perf_counter()": ["time.perf_counter"],
        "from time import monotonic_ns\nx = monotonic_ns()": ["monotonic_ns"],
        "from time import time\nx = time()": ["from time import time"],
        "x = time.time() + 3": ["time.time"],
        "x = len(os.sched_getaffinity(0)) + os.cpu_count()": ["os.cpu_count", "os.sched_getaffinity"],
        "psutil.Process().memory_info()": ["psutil.Process().memory_info"],
        "time.sleep(x)\nsleep(0.1)": ["sleep(x)", "sleep(0.1)"],
        "queue.get(timeout=5); queue.get(timeout=60); queue.get(timeout=None)": ["timeout=5"],
        "thread.join(2.5); thread.join(); ' '.join(words); thread.join(100)": ["join(2.5)"],
        "event.wait(5); lock.acquire(True, 5); pipe.poll(1); future.result(1); one.get(5)": [
            "acquire(True, 5)", "poll(1)", "result(1)", "wait(5)"
        ],
        "LIMIT = 5\nprocess.wait(LIMIT)": ["wait(LIMIT)"],
        "@pytest.mark.timeout(10)\ndef test(): pass": ["timeout(10)"],
        "probe(loader, budget=2); convert(budget=1 << 30); convert(budget=2_000_000)": ["budget=2"],
        "pool.block(arm, 0.1); pool.block(arm, Rounds(2))": ["block(arm, 0.1)"],
        "CODE = '''\n    import time\n    time.sleep(9)\n'''": ["in code: sleep(9)"],
        "'''Is timeout=5 what sleep(3) does? No code.'''": [],
        "monkeypatch.setattr(time, 'perf_counter', clock)": [],
        "real = time.perf_counter  # fake clock\nclock.sleep(3)  # fake clock": [],
    }  # fmt: skip
    for source, words in sources.items():
        assert [said for _, said in places(source)] == words, source


def test_a_new_clock_is_refused() -> None:
    found = {"loader/test_new.py": places("import time\nbegan = time.perf_counter()"), "loader/test_old.py": places("sleep(1)")}
    assert refused(found, {"loader/test_old.py": 1}) == [
        "loader/test_new.py:2 time.perf_counter",
        "loader/test_new.py: (1 places, 0 in clock_debts.txt)",
    ]
    assert refused(found, {"loader/test_new.py": 1, "loader/test_old.py": 2}) == []


def test_modules_for_a_device_are_told_apart() -> None:
    assert marked_gpu("pytestmark = [pytest.mark.gpu, pytest.mark.skip]")
    assert not marked_gpu("@pytest.mark.gpu\ndef test(): pass")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        sys.exit(write())
    for name, some in of_the_gate().items():
        print("\n".join(f"{name}:{line} {words}" for line, words in some))
