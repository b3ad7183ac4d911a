"""On a fake device whose streams lag as far as they may, each step reads its own batch; and faults that would change that are seen.

Each lag hides faults that the other shows. A step that lags behind reads memory that was given away too early; of copies that lag,
it reads what is not there yet.
"""

from __future__ import annotations

from tests.gpu import races
from tests.gpu.conftest import FakeDevice

LAGS = ("default", "side")


def test_every_mutant_is_seen(fake_device: FakeDevice) -> None:
    seen = {lag: fake_device(races.with_mutants, FAKE_MODE="race", FAKE_LAG=lag) for lag in LAGS}
    assert all(seen[lag]["Carrier"] == 0 for lag in LAGS)
    assert [name for name in races.MUTANTS if name != "Carrier" and not any(seen[lag][name] for lag in LAGS)] == []
