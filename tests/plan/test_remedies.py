"""Every remedy proposed at least once and declined for each of its reasons, in whole sentences."""

from __future__ import annotations

import pytest

from pipefix.measurement.measurement import Block, FusedCall, KeptRecord, Row
from pipefix.measurement.trace import BatchTrace, Charge
from pipefix.plan.advise import advise
from pipefix.plan.case import Moving
from pipefix.plan.plan import Declined, Proposed
from pipefix.plan.remedy import all_remedies
from pipefix.system.machine import Machine
from pipefix.vocabulary.quantity import Interval, exactly
from pipefix.vocabulary.stage import Stage
from tests.plan.builders import (
    ALONE,
    CROWDED,
    FINISHED,
    JPEGS,
    MACHINE,
    SLOW_NETWORK,
    STEP_BOUND,
    STREAM,
    TAIL,
    TEXTS,
    TRIED,
    WHOLE,
    World,
    find,
    late,
    waits_for_copies,
    with_threads,
)


def proposed(world: World, id: str, **options: object) -> Proposed:
    step = world.step_called(id, **options)
    assert isinstance(step, Proposed), step
    return step


def test_ids_are_unlike() -> None:
    ids = [kind.id for kind in all_remedies()]
    assert len(ids) == len(set(ids))


class TestWorkerCount:
    def test_a_count_that_was_tried_is_told_as_measured(self) -> None:
        step = proposed(TRIED, "workers-4")
        assert step.measured
        assert step.speedup.value == pytest.approx(1.8, abs=0.01)
        assert step.title == "Use 4 workers instead of 2"
        assert step.why == "2 workers now, 4 cores; 4 workers were really tried beside today's setting"
        assert step.command == "DataLoader(..., num_workers=4)  # or all settings at once: pipefix tune TARGET"

    def test_the_smallest_of_equals_is_taken(self) -> None:
        world = JPEGS.but(fields={"trials": {"workers-4": [(900.0, 500.0)] * 4, "workers-8": [(905.0, 500.0)] * 4}})
        assert world.plan().proposed[0].id == "workers-4"

    def test_fewer_are_proposed_where_they_are_as_fast(self) -> None:
        world = STEP_BOUND.but(fields={"trials": {"workers-1": [(50.0, 50.0)] * 5}})
        step = proposed(world, "workers-1")
        assert step.frees == "1 worker and its memory"
        assert step.why.endswith("As fast as today, and it frees 1 worker and its memory")

    def test_predicted_where_none_was_tried(self) -> None:
        step = proposed(JPEGS, "workers-4")
        assert not step.measured
        assert step.speedup.value == pytest.approx(0.0049 / 0.00245, rel=0.03)

    def test_the_best_count_is_proposed_where_none_was_tried(self) -> None:
        assert proposed(JPEGS.but(workers=4, cores=16.0), "workers-16").speedup.value == pytest.approx(4.0, rel=0.02)

    def test_workers_that_were_not_tried_have_to_fit_into_memory(self) -> None:
        """Eight, of about 60 MB and 58 MB of batches each, where sixteen would be quicker; sixteen where those seen are small."""
        room = Machine(system="Linux", kernel="6.1", effective_cores=16.0, memory_available_bytes=800_000_000)
        world = JPEGS.but(workers=4, cores=16.0)
        assert isinstance(world.step_called("workers-16"), Proposed)
        assert isinstance(world.step_called("workers-8", machine=room), Proposed)
        small = world.but(facts={"worker.uss_bytes": 1e6})
        assert isinstance(small.step_called("workers-16", machine=room), Proposed)

    def test_streams_are_warned_of(self) -> None:
        step = proposed(STREAM, "workers-4")
        assert step.risk == (
            "Each worker runs the whole IterableDataset: unless it shards itself by get_worker_info(), samples come repeated."
        )


class TestArmsThatRanSomethingLive:
    """An arm whose stage was only partly answered from the recording speaks for that part, and the model for the rest."""

    def world(self, left: float) -> World:
        def block(arm: str, wall: int) -> Block:
            trace = BatchTrace(1, 1, 0, 1, 32, 0, 0, 0, 0, 0, charges=[Charge("storage", "socket.recv", wall, 0, 0, 1)])
            return Block(arm, (Row(0, 1, 2, 0, 0, trace),), 1.0, 32)

        gain = exactly(SLOW_NETWORK.seconds / SLOW_NETWORK.but(storage=SLOW_NETWORK.storage * left).seconds)
        blocks = [block("real", 320_000_000), block("storage-from-memory", int(320_000_000 * left))]
        return SLOW_NETWORK.but(arms={"storage-from-memory": gain}, fields={"blocks": blocks}, ops={})

    @pytest.mark.parametrize("left", [0.0, 0.5, 0.95])
    def test_the_speedup_is_that_of_all_of_it(self, left: float) -> None:
        step = proposed(self.world(left), "cache-source")
        assert step.speedup.value == pytest.approx(0.0124 / 0.0024163, rel=0.01)


class TestCacheSource:
    def test_proposed(self) -> None:
        step = proposed(SLOW_NETWORK.but(ops={}).with_arms(), "cache-source")
        assert step.why == "Reading takes 10.0 ms a sample; reading a record of 100 kB back takes about 16.3 µs"
        assert step.disk_bytes == pytest.approx(5e9)
        assert step.seconds == pytest.approx(525.0)

    def test_its_command(self) -> None:
        step = proposed(SLOW_NETWORK.but(ops={}), "cache-source", target="my data.py")
        assert step.command == "pipefix convert 'my data.py' --to lmdb --store source --out cache-source"

    def test_proposed_where_a_client_that_is_known_reads(self) -> None:
        client = SLOW_NETWORK.but(ops={Stage.STORAGE: ("urllib.request.urlopen", "socket.recv", "requests.Session.send")})
        assert proposed(client, "cache-source").command


class TestCacheResized:
    def test_proposed(self) -> None:
        step = proposed(JPEGS.with_arms(), "cache-resized-256")
        assert step.speedup.value == pytest.approx(1.8, abs=0.1)
        assert step.why == (
            "Decoding takes 6.00 ms a sample; about 31 % of the pixels would be left; reading a record of 30.6 kB back takes "
            "about 11.9 µs"
        )
        assert step.disk_bytes == pytest.approx(1.53e9, rel=0.01)

    def test_knows_the_pixels_where_they_were_measured(self) -> None:
        world = JPEGS.but(facts={"decoded_bytes": 3 * 2048 * 2048.0})
        assert proposed(world, "cache-resized-256").why.startswith(
            "Decoding takes 6.00 ms a sample; 2.1 % of the pixels would be left;"
        )

    def test_its_command(self) -> None:
        step = proposed(JPEGS, "cache-resized-256")
        assert step.command == "pipefix convert TARGET --to lmdb --store resized --size 256 --out cache-resized"


class TestCacheDecoded:
    def test_proposed(self) -> None:
        step = proposed(TEXTS.with_arms(), "cache-decoded")
        assert step.why == "Reading and decoding take 2.05 ms a sample; reading a record of 2.05 kB back takes about 10.1 µs"
        assert step.disk_bytes == pytest.approx(50_000 * 2048)

    @pytest.mark.parametrize(("bytes", "told"), [(2048.0, "25.0 µs"), (162_048.0, "15.0 µs"), (1_602_048.0, "12.5 µs")])
    def test_reading_takes_what_it_took(self, bytes: float, told: str) -> None:
        """What the record that was tried holds besides need not be copied; half of its time is the least that is believed."""
        kept = KeptRecord(exactly(25e-6), bytes)
        step = proposed(TEXTS.but(fields={"record": kept}).with_arms(), "cache-decoded")
        assert step.why.endswith(f"reading a record of 2.05 kB back takes about {told}")

    def test_a_finished_sample_that_no_record_holds_says_nothing_of_a_decoded_one(self) -> None:
        world = TEXTS.but(augment=0.002, fields={"record": KeptRecord(why_not="a my.Graph: records hold numbers, text, bytes")})
        proposed(world, "cache-decoded")

    def test_worth_what_the_loader_over_such_records_showed(self) -> None:
        kept = KeptRecord(exactly(25e-6), 2048.0, gain=Interval(7.0, 6.5, 7.5), pairs=3)
        step = proposed(TEXTS.but(fields={"record": kept}).with_arms(), "cache-decoded")
        assert step.speedup == kept.gain and step.measured
        assert step.why.endswith("reading a record of 2.05 kB back takes about 25.0 µs, and the loader was run over a few of them")

    def test_what_is_left_to_be_done_is_not_seen_so(self) -> None:
        """Finished samples are the most that any cache brings."""
        ops = {Stage.DECODE: ("json.loads",), Stage.AUGMENT: ("mine.noise",)}
        world = TEXTS.but(augment=0.0002, ops=ops)
        alone = proposed(world.with_arms(), "cache-decoded").speedup
        assert not proposed(world.with_arms(), "cache-decoded").measured
        kept = KeptRecord(exactly(10e-6), 2048.0, gain=exactly(0.5 * alone.value), pairs=3)
        assert proposed(world.but(fields={"record": kept}).with_arms(), "cache-decoded").speedup.value == 0.5 * alone.value
        kept = KeptRecord(exactly(10e-6), 2048.0, gain=exactly(2 * alone.value), pairs=3)
        assert proposed(world.but(fields={"record": kept}).with_arms(), "cache-decoded").speedup.value == pytest.approx(
            alone.value, rel=0.05
        )


class TestCacheSample:
    def test_everything_is_kept_where_nothing_is_random(self) -> None:
        step = proposed(FINISHED.with_arms(), "cache-sample")
        assert step.why == (
            "Everything up to ToTensor takes 9.20 ms a sample and always gives the same; reading a record of 602 kB back takes "
            "about 47.6 µs"
        )
        assert step.speedup.value == pytest.approx(0.0049 / ((0.0002 + 0.0004 + 0.0000476) / 2), rel=0.02)

    def test_the_random_rest_stays_live(self) -> None:
        ops = {Stage.DECODE: ("PIL.Image.load",), Stage.AUGMENT: ("Resize", "RandomHorizontalFlip", "ToTensor")}
        step = proposed(FINISHED.but(ops=ops), "cache-sample")
        assert step.why.startswith("Everything up to Resize takes 7.20 ms a sample")

    def test_proposed_for_functions_of_any_name_where_samples_came_out_the_same(self) -> None:
        ops = {Stage.DECODE: ("soundfile.read",), Stage.AUGMENT: ("scipy.signal.resample_poly",)}
        own = FINISHED.but(augment=0.02, ops=ops)
        step = own.step_called("cache-sample")
        assert isinstance(step, Declined) and step.why.endswith("may be random: the same as cache-decoded")
        step = proposed(own.but(fields={"same_every_time": True}), "cache-sample")
        assert "a few that were made twice came out the same" in step.why
        assert step.risk is not None


class TestAugmentGpu:
    def test_proposed_beside_a_gpu(self) -> None:
        step = proposed(JPEGS.with_arms(), "augment-gpu", cuda=True)
        assert step.speedup.value == pytest.approx(9.8 / 6.8)
        assert step.why == (
            "Augmentation takes 3.00 ms a sample (RandomResizedCrop most); the GPU's own share of it is not in the figure"
        )
        assert "swap" in step.command
        assert proposed(JPEGS, "augment-gpu", cuda=True).command == "pipefix swap TARGET --to kornia"

    def test_what_stays_on_the_cpu_is_not_promised(self) -> None:
        world = JPEGS.but(ops={Stage.DECODE: ("PIL.Image.load",), Stage.AUGMENT: ("RandomResizedCrop", "ColorJitter")}).with_arms()
        whole = proposed(world, "augment-gpu", cuda=True)
        part = proposed(world, "augment-gpu", cuda=True, moving=Moving(frozenset({"ColorJitter"})))
        assert "of which " in part.why and " stays on the CPU" in part.why
        assert 1 < part.speedup.value < whole.speedup.value


class TestDecodeGpu:
    def test_proposed_beside_a_gpu_as_the_most_it_can_bring(self) -> None:
        step = proposed(JPEGS.with_arms(), "decode-gpu", cuda=True, whole=WHOLE)
        assert step.speedup.low == 1.0 < 2 < step.speedup.value
        assert "which is the most that it can bring" in step.why
        assert step.command == "pipefix swap TARGET --to dali"
        assert "dali" in proposed(JPEGS, "decode-gpu", cuda=True, whole=WHOLE).command


class TestHandoverSlots:
    def test_proposed(self) -> None:
        step = proposed(JPEGS.but(ipc=0.004), "handover-slots")
        assert step.why == "Handing over 19.3 MB takes 131 ms a batch; through memory that was used before about 3.66 ms"
        slot = (60e-6 + 19_267_840 / 5.5e9) / 32
        assert step.speedup.value == pytest.approx(0.0134 / (0.0094 + slot), rel=1e-3)


class TestCollateFaster:
    SLOW = JPEGS.but(collate=0.004)

    def test_proposed(self) -> None:
        step = proposed(self.SLOW.with_arms(), "collate-faster")
        assert step.why == "Collating takes 128 ms a batch; copying its 19.3 MB once takes about 3.21 ms"
        assert step.speedup.value == pytest.approx(0.0136 / (0.0096 + 0.0001), rel=0.01)

    def test_its_advice_fits_the_batch(self) -> None:
        many = self.SLOW.but(facts={"batch.small_tensors": 64.0})
        assert proposed(many, "collate-faster").command.startswith("Return one tensor a field instead of 64 small ones a batch")
        own = self.SLOW.but(settings={"collate": "pad_batch"})
        assert proposed(own, "collate-faster").command.startswith("In pad_batch, allocate the batch once")


class TestPinning:
    def test_proposed_where_the_step_waits_for_its_copy(self) -> None:
        step = proposed(waits_for_copies(), "pinning", cuda=True)
        assert step.why == "Copying a batch of 19.3 MB takes 4.00 ms from ordinary memory and 1.00 ms from pinned"
        assert step.command == "DataLoader(..., pin_memory=True) and batch.to('cuda', non_blocking=True) in the step"
        before = 0.02 / 32 + 0.0001
        assert step.speedup.value == pytest.approx(before / (before - 0.003 / 32), rel=1e-3)


class TestEarlyCopy:
    def test_proposed_where_steps_wait_for_their_copies(self) -> None:
        step = proposed(late(), "early-copy", cuda=True)
        assert step.why == (
            "Each step waits 5.00 ms for its copy, which takes 2.00 ms from pinned memory and could run beside the step before "
            "(20.0 ms)"
        )
        assert step.speedup.value == pytest.approx(25.1 / 20.1, rel=0.02)
        assert "device='cuda'" in step.command

    def test_what_is_longer_than_the_step_stays(self) -> None:
        longer = proposed(late(exposed=0.03, pinned=0.03), "early-copy", cuda=True)
        assert longer.speedup.value == pytest.approx(50 / 30, rel=0.05)


class TestPersistentWorkers:
    SHORT = JPEGS.but(settings={"length": 3200}, fields={"epoch_restart": 4.0, "first_batch": 4.5})

    def test_proposed_for_short_epochs(self) -> None:
        step = proposed(self.SHORT, "persistent-workers")
        assert step.why == "Every epoch waits 4.00 s for its first batch, 20 % of its 19.7 s"
        steady = 3200 * 0.0049
        assert step.speedup.value == pytest.approx((4 + steady) / (0.0098 * 32 + steady))
        assert step.command == "DataLoader(..., persistent_workers=True)"

    def test_a_slow_step_does_not_hide_it(self) -> None:
        world = STEP_BOUND.but(settings={"length": 640}, fields={"epoch_restart": 4.0})
        assert proposed(world, "persistent-workers").speedup.value > 1.2


class TestTailScheduling:
    def test_proposed(self) -> None:
        world = JPEGS.but(tail=TAIL)
        measurement, diagnosis = world.measurement(), world.diagnosis()
        diagnosis.sample = exactly(0.0065)
        step = find(advise(measurement, diagnosis, machine=MACHINE), "tail-scheduling")
        assert isinstance(step, Proposed)
        assert step.why == (
            "The slowest sample in a hundred takes 75.0x the median (4.00 ms), and finished batches waited 1.60 ms a sample "
            "behind it, "
            "25 % of the time"
        )
        assert step.speedup.value == pytest.approx(0.0065 / 0.0049)
        assert step.command == "DataLoader(..., in_order=False)"

    def test_samples_that_wait_for_a_cpu_are_not_slow_themselves(self) -> None:
        world = JPEGS.but(tail=TAIL)
        measurement, diagnosis = world.measurement(), world.diagnosis()
        diagnosis.sample, diagnosis.starved = exactly(0.0065), 0.4
        step = find(advise(measurement, diagnosis, machine=MACHINE), "tail-scheduling")
        assert isinstance(step, Declined)
        assert step.why.startswith("samples seem unequal, but for 40 % of the time the pipeline was ready to run and had no CPU")


class TestThreadCaps:
    def test_proposed_where_threads_fight_over_cores(self) -> None:
        step = proposed(with_threads(CROWDED, 2_000_000, 1_000_000), "thread-caps")
        assert step.why == "4 workers run 20 busy threads on 4 cores and use 2.00x the CPU time of their main threads"
        assert step.speedup == Interval(2**0.5, 1.0, 2.0)
        assert step.command == "worker_init_fn=lambda worker: cv2.setNumThreads(0), and OMP_NUM_THREADS=1 in the environment"


class TestBatchedFetch:
    def test_proposed_for_a_store_that_answers_late(self) -> None:
        step = proposed(SLOW_NETWORK, "batched-fetch")
        assert step.why == "Reading takes 10.0 ms a sample, 95 % of it waiting; 8 requests at once share the wait"
        assert step.speedup.value == pytest.approx(0.0124 / (0.0024 + 0.01 * (0.05 + 0.95 / 8)))


class TestBatchedTokenisation:
    PYTHON = TEXTS.but(decode=0.0002, ops={Stage.DECODE: ("tokenizer()",)})

    def test_python_is_paid_once_a_batch(self) -> None:
        step = proposed(self.PYTHON, "batched-tokenisation")
        assert step.why == "tokenizer() takes 200 µs a sample, in a call of its own; 50.0 µs of it are Python's"
        assert step.speedup.value == pytest.approx(0.0004 / 0.00035)

    def test_without_workers_the_cores_share_the_rest(self) -> None:
        step = proposed(TEXTS.but(workers=0), "batched-tokenisation")
        assert step.why == (
            "tokenizers.Tokenizer.encode takes 2.00 ms a sample, in a call of its own; 4 cores could share the native part"
        )
        assert step.speedup.value == pytest.approx(0.00215 / (0.00015 + 0.002 / 4))


EXACT = FusedCall(left=Interval(0.4, 0.38, 0.42), pictures=16, apart="pixels equal the list's own", draws=True)
CLOSE = FusedCall(
    left=Interval(0.3, 0.28, 0.32), pictures=16, draws=True,
    apart="pixels differ from the list's own by 0.041 levels of 255 on average, 1.00 at the 99th percentile, 1.0 at most",
)  # fmt: skip


def fused(world: World = JPEGS, **calls: FusedCall) -> World:
    return world.but(fields={"fused": calls})


class TestFuse:
    def test_it_takes_the_place_of_decoding_transforming_collating_and_handing_over(self) -> None:
        step = proposed(fused(exact=EXACT), "fuse-exact")
        assert step.why == (
            "Decoding and transforming take 9.00 ms a sample; on 16 of its pictures one call took 40 % of their code's time, and "
            "pixels equal the list's own"
        )
        # 200 us of reading, 3.6 ms of the call and 20 us of collating, by two threads.
        assert step.speedup.value == pytest.approx((0.0098 / 2) / (0.00382 / 2), rel=0.02)
        assert step.command == "Put pipefix.FastLoader(..., fuse='exact') in DataLoader's place: it takes the same arguments."
        assert step.risk == "random numbers are drawn anew for each sample, by seed, epoch and index"

    def test_without_random_numbers_nothing_changes(self) -> None:
        still = FusedCall(left=EXACT.left, pictures=16, apart=EXACT.apart)
        assert proposed(fused(exact=still), "fuse-exact").risk is None

    def test_worker_processes_still_hand_over(self) -> None:
        own = FusedCall(left=EXACT.left, pictures=16, apart=EXACT.apart, processes="collate_fn is your own")
        there = proposed(fused(exact=own), "fuse-exact").speedup.value
        assert there < proposed(fused(exact=EXACT), "fuse-exact").speedup.value

    def test_without_workers_all_cores_make_a_batch(self) -> None:
        step = proposed(fused(ALONE, exact=EXACT), "fuse-exact")
        assert step.speedup.value == pytest.approx(0.0094 / (0.00382 / 4), rel=0.05)

    @pytest.mark.parametrize("world", [JPEGS, ALONE], ids=["workers", "alone"])
    def test_it_is_no_quicker_than_the_whole_loader_was_seen_to_be(self, world: World) -> None:
        pace = Interval(0.0025, 0.0024, 0.0026)
        seen = FusedCall(left=EXACT.left, pictures=16, apart=EXACT.apart, pace=pace)
        now = world.case().model.seconds()[0]
        assert proposed(fused(world, exact=seen), "fuse-exact").speedup.value == pytest.approx(now / pace.value, rel=0.02)
        quick = FusedCall(left=EXACT.left, pictures=16, apart=EXACT.apart, pace=Interval(1e-5, 1e-5, 1e-5))
        unseen = proposed(fused(world, exact=EXACT), "fuse-exact").speedup
        assert proposed(fused(world, exact=quick), "fuse-exact").speedup.value == pytest.approx(unseen.value)

    def test_it_is_proposed_where_it_gains_more_than_equal_pixels_and_says_how_far_it_is_off(self) -> None:
        step = proposed(fused(exact=EXACT, close=CLOSE), "fuse-close")
        assert step.risk == (
            "pixels differ from the list's own by 0.041 levels of 255 on average, 1.00 at the 99th percentile, 1.0 at most; random "
            "numbers are drawn anew for each sample, by seed, epoch and index"
        )
        assert proposed(fused(exact=FusedCall(why_not="no"), close=CLOSE), "fuse-close").speedup.value > 2

    def test_equal_pixels_are_preferred(self) -> None:
        alike = FusedCall(left=EXACT.left, pictures=16, apart=CLOSE.apart, draws=True)
        steps = [step for step in fused(exact=EXACT, close=alike).plan() if step.id.startswith("fuse")]
        assert [step.id for step in steps] == ["fuse-exact"]
