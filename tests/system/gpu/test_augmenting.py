"""Augmentation on the fake device: the training loop's thread does not wait for the device in the middle of a batch."""

from __future__ import annotations

from tests.augment.lists import ALL
from tests.gpu import augmenting
from tests.gpu.conftest import FakeDevice


def test_a_batch_is_waited_for_at_most_once_whatever_the_list(fake_device: FakeDevice) -> None:
    found = fake_device(augmenting.waits)
    assert found.keys() == ALL.keys()
    often = {name: waits for name, waits in found.items() if max(waits[1:]) > 1}
    assert not often
    # Constants, such as the colour of what a rotation leaves empty, are brought once.
    assert max(waits[0] for waits in found.values()) <= 3
