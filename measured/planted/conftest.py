"""What planted pipelines need around them: the source that waits, threads as a worker has them, and a count of the cases that were
judged."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import pytest
import torch

from measured.planted.server import Server

LEAST_JUDGED = 0.7
"""Share of the planted cases that a run must judge. A case that other programs bend is skipped; a run that skips more of them has
said nothing about the product, and fails."""
JUDGING = ("test_verdicts.py", "test_ruler.py")

_outcomes: dict[str, list[str]] = {"judged": [], "skipped": []}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.nodeid.partition("::")[0].endswith(JUDGING):
        _outcomes["skipped" if report.skipped else "judged"].append(report.nodeid)


def too_few(judged: int, skipped: int) -> str | None:
    """What is wrong with a run that judged and skipped so many cases; None where nothing is."""
    if judged >= LEAST_JUDGED * (judged + skipped):
        return None
    return (
        f"{judged} of {judged + skipped} planted cases were judged, and {LEAST_JUDGED:.0%} are needed: "
        "other programs kept the machine busy. Run it again when they are done."
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if too_few(len(_outcomes["judged"]), len(_outcomes["skipped"])) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    judged, skipped = len(_outcomes["judged"]), len(_outcomes["skipped"])
    if judged + skipped:
        terminalreporter.write_line(too_few(judged, skipped) or f"Planted cases: {judged} judged, {skipped} skipped.")


@pytest.fixture(scope="session")
def waiting_server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Libraries that spread over cores would blur what one stage costs."""
    torch_threads, cv2_threads = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    yield
    torch.set_num_threads(torch_threads)
    cv2.setNumThreads(cv2_threads)
