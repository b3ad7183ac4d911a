"""Simulated jobs: the windows that a watch would write over a day, with the noise of real ones and, where asked, a planted drift.

Noise: neighbours that resemble each other, heavy tails, a wave over the day, a machine that is busier now and then for all stages
at once, single outliers, short bursts on storage, epochs that begin anew, and a first epoch that reads from a cold page cache.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipefix.watching.window import StageSeconds, Window

SECONDS = 30.0
DAY = int(86_400 / SECONDS)
STAGES = ("storage", "decode", "augment", "collate", "ipc", "step")
COSTS = {"storage": 8e-4, "decode": 4e-3, "augment": 2e-3, "collate": 2e-4, "ipc": 6e-5, "step": 3e-4}
NOISE = {"storage": 0.05, "decode": 0.025, "augment": 0.025, "collate": 0.04, "ipc": 0.05, "step": 0.02}
WAVE = {"storage": 0.05, "decode": 0.03, "augment": 0.03, "collate": 0.03, "ipc": 0.03, "step": 0.01}
MAKING = ("decode", "augment", "collate", "ipc")
"""What the machine's load is felt by."""


@dataclass
class Plant:
    """From window ``at`` on these figures are multiplied."""

    at: int
    factors: dict[str, float]


@dataclass
class Job:
    seed: int
    windows: int = DAY
    plant: Plant | None = None
    quiet: bool = False
    """Without waves, outliers, bursts and a cold start: noise alone."""
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def __iter__(self) -> Iterator[Window]:
        draw = self.random
        phase = {stage: draw.uniform(0, 2 * math.pi) for stage in STAGES}
        slow = dict.fromkeys((*STAGES, "machine"), 0.0)
        epoch_length, into, epoch = draw.randint(40, 160), 0, 1
        cold = draw.uniform(1.5, 4.0)
        burst = 0
        for number in range(1, self.windows + 1):
            starts: list[float] = []
            if into == 0:
                starts = [1.5 * self._noise(0.1)]
            slow["machine"] = 0.8 * slow["machine"] + draw.gauss(0, 0.009)
            burst = burst - 1 if burst else 2 if draw.random() < 4 / DAY else 0
            costs = {}
            for stage in STAGES:
                slow[stage] = 0.5 * slow[stage] + math.sqrt(1 - 0.25) * math.log(self._noise(NOISE[stage]))
                level = slow[stage] + (slow["machine"] if stage in MAKING else 0.0)
                if not self.quiet:
                    level += WAVE[stage] * math.sin(2 * math.pi * number / DAY + phase[stage])
                    if draw.random() < 0.003:
                        level += math.log(draw.uniform(1.3, 3.0))
                if stage == "storage" and not self.quiet:
                    level += math.log(cold) if epoch == 1 else math.log(1.12) if into == 0 else 0.0
                    level += math.log(1.7) if burst else 0.0
                costs[stage] = COSTS[stage] * math.exp(level) * self._planted(stage, number)
            size = 110_000 * self._noise(0.006) * self._planted("bytes", number)
            yield Window(
                time=1_700_000_000 + number * SECONDS,
                number=number,
                seconds=SECONDS,
                batches=600,
                samples=600 * 64,
                rate=1280.0,
                waiting=0.01,
                epochs=epoch,
                starts=starts,
                stages={stage: StageSeconds(s=cost, batches=12) for stage, cost in costs.items()},
                bytes=size,
                cpu=0.006 * self._noise(0.01) * self._planted("cpu", number),
                workers=4,
            )
            into += 1
            if into >= epoch_length:
                into, epoch = 0, epoch + 1

    def _planted(self, name: str, number: int) -> float:
        return self.plant.factors.get(name, 1.0) if self.plant is not None and number >= self.plant.at else 1.0

    def _noise(self, spread: float) -> float:
        """A factor near one, of Student's t distribution with three degrees of freedom: its tails are heavy."""
        draw = self.random
        chi = math.sqrt(sum(draw.gauss(0, 1) ** 2 for _ in range(3)) / 3)
        return math.exp(max(-1.0, min(1.0, spread * draw.gauss(0, 1) / max(chi, 0.05))))


DRIFTS: dict[str, dict[str, float]] = {
    **{stage: {stage: 1.2, **({"cpu": 1.05} if stage not in ("storage", "step") else {})} for stage in STAGES},
    "larger": {"bytes": 1.2, "storage": 1.15, "decode": 1.2, "cpu": 1.12},
}
"""Planted drifts of a fifth: by stage, and larger samples."""


def named(kind: str, stage: str | None) -> str:
    """What an alarm says has drifted, as `DRIFTS` calls it."""
    return "larger" if kind == "larger" else stage or kind
