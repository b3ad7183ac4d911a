"""Turns what the timer charged to batches into seconds a sample by stage, in the worker and in the training process. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from pipefix.diagnosis.clock_overhead import call_seconds
from pipefix.diagnosis.diagnosis import OpCost
from pipefix.hooks.charges import OWN_NAMES
from pipefix.measurement.measurement import Block, Measurement, Row, charges_of, rows_of
from pipefix.measurement.statistics import Floats
from pipefix.measurement.trace import Charge
from pipefix.vocabulary.stage import Stage

WORKER = ("storage", "decode", "augment", "collate", "ipc")
MAIN = ("main_ipc", "transfer", "step")
COLUMNS = (*WORKER, "own", "between", "idle", *MAIN, "wait", "loop", "sampler", "border", "supply")
"""Nanoseconds a batch. ``own``: the user's code before anything is read. ``between``: between samples in the maker.
``idle``: a worker between two batches. ``main_ipc``: taking a batch over in the training process. ``loop``: the rest there.
``sampler``: asking the user's sampler, which runs there too and is no stage.
``border``: what handing over ready batches takes; ``supply``: what the loader takes alone. Arms of their own measure these two, no
single batch knows them."""
IN_TURN = ("storage", "decode", "augment", "collate", "transfer", "step")
"""Stages of the one process that does all of it, where there are no workers."""
INDEX = {name: number for number, name in enumerate(COLUMNS)}
SAMPLES = len(COLUMNS)
WAITING = 0.5
"""Code that computes for less than this part of its time is waiting."""


def per_sample(rows: Floats) -> Floats:
    """Seconds a sample by column, of rows of a ledger."""
    return np.asarray(rows[:, :SAMPLES].sum(axis=0) / rows[:, SAMPLES].sum() / 1e9, dtype=np.float64)


def columns(rows: Floats, names: tuple[str, ...]) -> Floats:
    return np.asarray(rows[:, [INDEX[name] for name in names]])


def ledger(measurement: Measurement, blocks: Sequence[Block]) -> list[Floats]:
    """The timed blocks as numbers: a row a batch, `COLUMNS` in nanoseconds and the number of samples."""
    shared = _shared_part(blocks) if measurement.workers else 0.0
    first = _first_code(blocks)
    cost = clock_cost(measurement, blocks)
    hand = _handed(blocks) if measurement.workers else 0.0
    groups = []
    for block in blocks:
        rows = np.asarray([_row(row, measurement, shared, hand, first, cost) for row in block.rows], dtype=np.float64)
        if measurement.workers:
            rows[:, INDEX["idle"]] = max(0.0, _idle(block) - hand)
        groups.append(rows)
    return groups


def _row(row: Row, measurement: Measurement, shared: float, hand: float, first: str, cost: float) -> list[float]:
    trace = row.trace
    cells = dict.fromkeys(COLUMNS, 0.0)
    for charge in trace.charges:
        cells[_column(charge.stage, charge.op, first)] += _unclocked(charge, cost)
    _spread_foreign(cells, trace.foreign)
    making_ns = trace.made - trace.begun - trace.replay
    cells["between"] = max(0.0, making_ns - sum(trace.unit_walls))
    cells["collate"] = trace.collate_wall * (1 - shared)
    cells["ipc"] = trace.collate_wall * shared + hand
    fetching = row.got - row.asked
    own, ran_on = row.done - row.got, ran_on_after(row)
    cells["sampler"] = row.sampled
    if measurement.workers:
        cells["main_ipc"] = max(0.0, fetching - row.waited - row.sampled)
        cells["wait"] = max(0.0, row.waited - ran_on) if row.idle is None else float(min(row.waited, row.idle))
    else:
        cells["between"] += max(0.0, fetching - (trace.ended - trace.begun) - trace.extra - row.sampled)
        # Where the next batch takes longer to make than the device runs on, that hides behind the making.
        ran_on = ran_on if ran_on > fetching else 0
    if measurement.has_consumer:
        cells["transfer"] = min(measurement.transfer.get("exposed", 0.0) * 1e9, own + ran_on)
        cells["step"] = own + ran_on - cells["transfer"]
    else:
        cells["loop"] = row.done - row.got
    return [cells[name] for name in COLUMNS] + [trace.samples]


def clock_cost(measurement: Measurement, blocks: Sequence[Block]) -> float:
    """Nanoseconds that one timed call adds where it is made."""
    return call_seconds(measurement, exposed_share(blocks, measurement.workers)) * 1e9


def _unclocked(charge: Charge, cost: float) -> float:
    """A timed call adds to the time of the operation that made it, and is taken off there: the clocks that time the call itself run
    inside its wrapper."""
    return charge.wall - min(charge.wall, charge.entered * cost)


def ran_on_after(row: Row) -> int:
    """Nanoseconds that the device still computed after the step's call had returned: no wait of that length starves it."""
    return max(0, row.device - (row.done - row.got))


def exposed_share(blocks: Sequence[Block], workers: int, own: float = 0.0) -> float:
    """Part of the loop in which the consumer had nothing to do but wait for data.

    ``own``: nanoseconds a batch that it waits for the loader itself, whatever the data. Taken off the sum, not off each wait: what
    one wait has more than the mean, another has less.
    """
    loop = waited = 0.0
    rows = rows_of(blocks)
    for row in rows:
        exposed = _exposed(row, workers)
        waited += exposed
        if row.idle is None:
            loop += row.done - row.got + max(_fetching(row, workers), ran_on_after(row))
        else:  # the device's own time line
            loop += exposed + row.device
    return max(0.0, waited - len(rows) * own) / loop if loop else 0.0


def own_wait(blocks: Sequence[Block], workers: int) -> float:
    """Nanoseconds a batch that the consumer waits where batches cost nothing: the loader's own, and what measuring adds to it.

    The sampler is asked in every arm; what that takes is no cost of the loader.
    """
    waits = [[max(0.0, _exposed(row, workers) - row.sampled) for row in block.rows] for block in blocks if block.rows]
    return float(np.median([sum(each) / len(each) for each in waits])) if waits else 0.0


def _exposed(row: Row, workers: int) -> float:
    """Nanoseconds of the fetching in which the consumer had nothing to do: its device, where it has one that runs on."""
    fetching = _fetching(row, workers)
    if row.idle is None:
        return max(0.0, fetching - ran_on_after(row))
    return max(0.0, min(fetching, row.idle - (0 if workers else row.trace.extra)))


def _fetching(row: Row, workers: int) -> float:
    """Nanoseconds from asking for a batch to having it; without what is measured beside it, which training would not wait for."""
    return row.got - row.asked - (0 if workers else row.trace.extra)


def _idle(block: Block) -> float:
    """Nanoseconds that a worker spends between two batches of a block, on average."""
    last: dict[int, Row] = {}
    gaps = []
    for row in sorted(block.rows, key=lambda row: row.trace.begun):
        if (before := last.get(row.trace.worker)) is not None:
            gaps.append(max(0, row.trace.begun - before.trace.ended - before.trace.extra))
        last[row.trace.worker] = row
    return sum(gaps) / len(gaps) if gaps else 0.0


def _column(stage: str | None, op: str, first: str) -> str:
    """``first``: what the user's own code before any read is taken for."""
    return stage or {OWN_NAMES[1]: "decode", OWN_NAMES[2]: "augment"}.get(op, first)


def _first_code(blocks: Sequence[Block]) -> str:
    """What the user's own code before any hook is taken for.

    Where it mostly waits, it waits for a source that no hook knows. Where nothing is ever read or decoded the data are
    in memory, and all code works on values. Otherwise it belongs to no stage.
    """
    charges = list(charges_of(rows_of(blocks)))
    own_charges = [charge for charge in charges if charge.op == OWN_NAMES[0]]
    base, spent = sum(charge.cpu_wall for charge in own_charges), sum(charge.wall for charge in own_charges)
    computed = sum(charge.cpu for charge in own_charges) / base if base else 1.0
    beside = min(1.0, other_threads(blocks) / spent) if spent else 0.0
    if computed + beside < WAITING and starved_share(blocks) < WAITING:
        return "storage"
    return "own" if any(charge.stage in ("storage", "decode") for charge in charges) else "augment"


def _spread_foreign(cells: dict[str, float], foreign: Sequence[tuple[str, str, int]]) -> None:
    """Hooks crossed by helper threads ran beside the batch's own thread, which waited: its waiting is theirs, in proportion."""
    total = sum(spent for _, _, spent in foreign)
    if not total:
        return
    waiting = cells["own"]
    for stage, _, spent in foreign:
        cells[stage] += waiting * spent / total
    cells["own"] = 0.0


def _shared_part(blocks: Sequence[Block]) -> float:
    """Part of collating in a worker that only goes into fresh shared memory: the hand-over's cost, not collating's."""
    if not (traces := [row.trace for row in rows_of(blocks) if row.trace.plain_collate]):
        return 0.0
    # A function that works on samples in place has less to do with them a second time, whichever memory the batch lies in.
    plain, again, live = np.median([[t.plain_collate, t.collate_again, t.collate_wall] for t in traces], axis=0)
    return float(min(0.98, max(0.0, (again - plain) / live))) if live else 0.0


def _handed(blocks: Sequence[Block]) -> float:
    """Nanoseconds a batch that a worker spends pickling what it hands over."""
    rows = rows_of(blocks)
    spent, count = sum(row.trace.dumps for row in rows), sum(row.trace.handed for row in rows)
    return spent / count if count else 0.0


def charged(blocks: Sequence[Block], stage: Stage) -> float:
    """Nanoseconds a sample that the clocks charged to a stage."""
    rows, samples = rows_of(blocks), sum(block.samples for block in blocks)
    if stage is Stage.COLLATE:
        walls = sum(row.trace.collate_wall for row in rows)
    else:
        walls = sum(charge.wall for charge in charges_of(rows) if charge.stage == stage)
    return walls / samples if samples else 0.0


def cpu_shares(blocks: Sequence[Block]) -> dict[str, float]:
    """CPU over wall by stage, from those samples whose CPU time was read."""
    wall: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    first, rows = _first_code(blocks), rows_of(blocks)
    for charge in charges_of(rows):
        column = _column(charge.stage, charge.op, first)
        wall[column] += charge.cpu_wall
        cpu[column] += charge.cpu
    wall["collate"] += sum(row.trace.collate_wall for row in rows)
    cpu["collate"] += sum(row.trace.collate_cpu for row in rows)
    return {name: min(1.0, cpu[name] / spent) for name, spent in wall.items() if spent}


def starved_share(blocks: Sequence[Block]) -> float:
    """Part of the making of batches in which the making thread was ready to run and had no CPU."""
    traces = [row.trace for row in rows_of(blocks)]
    starved, making_ns = sum(trace.starved for trace in traces), sum(trace.ended - trace.begun for trace in traces)
    return min(1.0, starved / making_ns) if making_ns else 0.0


def compute_shares(blocks: Sequence[Block]) -> dict[str, float]:
    """`cpu_shares` with the queue for a CPU counted in, and what other threads computed meanwhile: what is left to 1 is waiting for
    something else.

    Who computes more queues more, so queueing is spread over the stages by their CPU time. Who waits more waits for other threads.
    """
    traces = [row.trace for row in rows_of(blocks)]
    cpu, starved = sum(trace.cpu for trace in traces), sum(trace.starved for trace in traces)
    longer = 1 + starved / cpu if cpu else 1.0
    shares = {name: min(1.0, share * longer) for name, share in cpu_shares(blocks).items()}
    covered = _covered(blocks, shares)
    return {name: share + covered * (1 - share) for name, share in shares.items()}


def other_threads(blocks: Sequence[Block]) -> float:
    """CPU nanoseconds that other threads of the making processes used while batches were made.

    Without what hands over the batch before: that runs beside the making, and nobody waits for it.
    """
    traces = [row.trace for row in rows_of(blocks)]
    return float(sum(max(0, trace.process_made - trace.cpu - trace.dumps - trace.send) for trace in traces if trace.process_made))


def _covered(blocks: Sequence[Block], shares: dict[str, float]) -> float:
    """Part of the waiting during which other threads of the process worked: a library's own pool is work, not waiting."""
    if not (beside := other_threads(blocks)):
        return 0.0
    first = _first_code(blocks)
    waited = 0.0
    for row in rows_of(blocks):
        for charge in row.trace.charges:
            waited += charge.wall * (1 - shares.get(_column(charge.stage, charge.op, first), 1.0))
        waited += row.trace.collate_wall * (1 - shares.get("collate", 1.0))
    return min(1.0, beside / waited) if waited else 0.0


def operations(blocks: Sequence[Block], cost: float = 0.0) -> dict[Stage, list[OpCost]]:
    """By stage, costliest first; they add up to what the ledger says of it. ``cost``: nanoseconds that one timed call adds."""
    sums: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    samples = sum(block.samples for block in blocks)
    first = _first_code(blocks)
    for row in rows_of(blocks):
        waiting = 0.0
        for charge in row.trace.charges:
            column, wall = _column(charge.stage, charge.op, first), _unclocked(charge, cost)
            entry = sums[column, charge.op]
            for place, value in enumerate((wall, charge.cpu, charge.cpu_wall, charge.calls)):
                entry[place] += value
            waiting += wall if column == "own" else 0.0
        beside = sum(spent for _, _, spent in row.trace.foreign)
        for stage, op, spent in row.trace.foreign:
            sums[stage, f"{op} (other threads)"][0] += waiting * spent / beside
    _give_to_threads(sums, blocks)
    result: dict[Stage, list[OpCost]] = {}
    for (column, op), (wall, cpu, base, calls) in sums.items():
        if column == "own":
            continue
        each = wall / samples / 1e9
        own = "the user's own code, bounded by no library call" if op in OWN_NAMES else None
        op_cost = OpCost(op, each, each * min(1.0, cpu / base) if base else None, calls / samples, own)
        result.setdefault(Stage(column), []).append(op_cost)
    return {stage: sorted(ops, key=lambda op: -op.wall_s) for stage, ops in result.items()}


def _give_to_threads(sums: defaultdict[tuple[str, str], list[float]], blocks: Sequence[Block]) -> None:
    """The user's own code that waits while helper threads do operations of its stage waits for those: the time is theirs."""
    beside: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for stage, op, spent in (entry for row in rows_of(blocks) for entry in row.trace.foreign):
        beside[stage][op] += spent
    for (column, op), entry in list(sums.items()):
        wall, cpu, base, _ = entry
        if op not in OWN_NAMES or column not in beside or not base or not wall:
            continue
        total = sum(beside[column].values())
        of_threads = min(wall * max(0.0, 1 - cpu / base), float(total))
        entry[0], entry[2] = wall - of_threads, base * (1 - of_threads / wall)
        for thread_op, spent in beside[column].items():
            sums[column, f"{thread_op} (other threads)"][0] += of_threads * spent / total
