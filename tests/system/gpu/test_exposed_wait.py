"""What a step is said to have waited, against what its device really idled: also where it has work queued from steps before."""

from __future__ import annotations

from tests.gpu import exposed
from tests.gpu.conftest import FakeDevice


def test_a_device_with_a_backlog_is_not_waiting(fake_device: FakeDevice) -> None:
    found = fake_device(exposed.grid)
    assert len(found) >= 60
    for who in ("told", "trial"):
        assert {name: one for name, one in found.items() if abs(one[who] - one["idle"]) > 0.02 + one["lost"]} == {}


def test_a_step_on_another_device_than_the_current_one_is_waited_for(fake_device: FakeDevice) -> None:
    found = fake_device(exposed.on_another_device, FAKE_DEVICES=2)
    for who in ("told", "trial"):
        assert abs(found[who] - found["idle"]) <= 0.02 + found["lost"]


def test_what_a_step_could_take_is_what_its_device_could(fake_device: FakeDevice) -> None:
    """Launches are quicker than steps: counted alone they told 1,799 batches a second of a step that takes 100."""
    found = fake_device(exposed.demand)
    assert found["alone"] < 101
    assert found["rows"] < 40, "a block ends about when it is to"
