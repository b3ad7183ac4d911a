"""Made-up measurements: pipelines whose arms agree with their clocks, or contradict them, or did not run."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from pipefix.hooks.charges import OWN_NAMES
from pipefix.measurement.measurement import Measurement
from pipefix.measurement.trace import Charge
from tests.doubles.invariants import OWN_ARM
from tests.doubles.measured import MS, measured

CANNOT = "what it gives cannot be recorded"
LACKED = "no time was left in the budget for it; a longer --budget runs it"


@dataclasses.dataclass(frozen=True)
class MadeUp:
    """A measurement whose arms agree with its clocks, or contradict them, or did not run."""

    costs: dict[str, float]
    workers: int
    step: float
    handing: float
    arms: dict[str, float | str]
    """Throughput over the real arm's, or why it did not run; the others gain what their costs allow."""
    blocks: int
    own: str
    """Which of the user's own code runs between calls that are known."""
    spent: float
    seam_cost: float
    foreign: bool
    """Whether threads of the dataset's own run beside it."""
    sampler: float
    """Milliseconds a sample."""
    copying: float
    """Part of the step that its copy to the device takes, where there is one."""

    def measurement(self) -> Measurement:
        arms = {arm: gain if isinstance(gain, float) else None for arm, gain in self.arms.items()}
        declined = {arm: why for arm, why in self.arms.items() if isinstance(why, str)}
        costs = self.costs if self.workers else {name: value for name, value in self.costs.items() if name != "ipc"}
        measurement = measured(
            costs,
            workers=self.workers,
            step=self.step,
            handing=self.handing if self.workers else 0.0,
            arms=arms | ({} if self.workers else {"handover-skipped": None}) | ({} if self.step else {"no-consumer": None}),
            blocks=self.blocks,
            batches=8,
        )
        measurement.declined |= declined
        measurement.untried = {arm for arm, why in declined.items() if why == LACKED}
        measurement.seam_cost = self.seam_cost
        if self.copying and self.step:
            copied = self.copying * 4 * self.step / 1e3
            measurement.transfer = {"pinned": copied, "pageable": 2 * copied, "pinning": copied, "bytes": 1e6, "exposed": copied}
        wall = round(self.spent * 4 * MS)
        for row in measurement.rows("real"):
            if self.own:
                row.trace.charges = [*row.trace.charges, Charge(None, self.own, wall, wall, wall, 0)]
            if self.foreign:
                row.trace.foreign = [("storage", "socket.recv", 3 * MS)]
        return sampled(measurement, self.sampler)


def sampled(measurement: Measurement, ms: float) -> Measurement:
    """Every batch is asked for ``ms`` milliseconds a sample later, by the sampler."""
    later = round(ms * 4 * MS)
    for number, block in enumerate(measurement.blocks):
        rows = tuple(
            dataclasses.replace(row, got=row.got + later, done=row.done + later, sampled=row.sampled + later) for row in block.rows
        )
        measurement.blocks[number] = dataclasses.replace(block, rows=rows)
    return measurement


COSTS = st.fixed_dictionaries({name: st.floats(0.01, 10.0) for name in ("storage", "decode", "augment", "collate", "ipc")})
ARMS = st.dictionaries(
    st.sampled_from([*OWN_ARM.values(), "samples-recorded", "loader-floor", "batch-prebuilt", "sampler-recorded"]),
    st.one_of(st.floats(0.5, 8.0), st.sampled_from([CANNOT, LACKED])),
)
MADE_UP = st.builds(
    MadeUp,
    costs=COSTS,
    workers=st.sampled_from([0, 0, 1, 2, 4]),
    step=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
    handing=st.floats(0.0, 3.0),
    arms=ARMS,
    blocks=st.integers(1, 6),
    own=st.sampled_from(["", *OWN_NAMES]),
    spent=st.floats(0.01, 10.0),
    seam_cost=st.sampled_from([0.0, 1e-6, 1e-5]),
    foreign=st.booleans(),
    sampler=st.sampled_from([0.0, 0.0, 0.1, 1.0, 20.0]),
    copying=st.sampled_from([0.0, 0.0, 0.05, 0.5, 0.95]),
)
