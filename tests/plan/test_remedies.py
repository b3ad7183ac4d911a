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
from tests.plan.builders import JPEGS, MACHINE, SLOW_NETWORK, STEP_BOUND, TEXTS, World, find

ALONE = JPEGS.but(workers=0)
STREAM = JPEGS.but(settings={"kind": "iterable", "length": None})


def proposed(world: World, id: str, **options: object) -> Proposed:
    step = world.step_called(id, **options)
    assert isinstance(step, Proposed), step
    return step


def declined(world: World, id: str, **options: object) -> str:
    step = world.step_called(id, **options)
    assert isinstance(step, Declined), step
    return step.why


def test_ids_are_unlike() -> None:
    ids = [kind.id for kind in all_remedies()]
    assert len(ids) == len(set(ids))


class TestWorkerCount:
    TRIED = JPEGS.but(
        found={"trials": {"workers-4": [(900.0, 500.0), (910.0, 505.0), (890.0, 500.0)], "workers-1": [(260.0, 500.0)]}}
    )

    def test_a_count_that_was_tried_is_told_as_measured(self) -> None:
        step = proposed(self.TRIED, "workers-4")
        assert step.measured
        assert step.speedup.value == pytest.approx(1.8, abs=0.01)
        assert step.title == "Use 4 workers instead of 2"
        assert step.why == "2 workers now, 4 cores; 4 workers were really tried beside today's setting"
        assert step.command == "DataLoader(..., num_workers=4)  # or all settings at once: pipefix tune TARGET"

    def test_the_others_say_what_they_gave(self) -> None:
        assert declined(self.TRIED, "workers-1") == (
            "1 worker gave 0.52x in one block of today's throughput, 4 workers 1.80x (1.78-1.82)"
        )

    def test_the_smallest_of_equals_is_taken(self) -> None:
        world = JPEGS.but(found={"trials": {"workers-4": [(900.0, 500.0)] * 4, "workers-8": [(905.0, 500.0)] * 4}})
        assert world.plan().proposed[0].id == "workers-4"

    def test_fewer_are_proposed_where_they_are_as_fast(self) -> None:
        world = STEP_BOUND.but(found={"trials": {"workers-1": [(50.0, 50.0)] * 5}})
        step = proposed(world, "workers-1")
        assert step.frees == "1 worker and its memory"
        assert step.why.endswith("As fast as today, and it frees 1 worker and its memory")

    def test_predicted_where_none_was_tried(self) -> None:
        step = proposed(JPEGS, "workers-4")
        assert not step.measured
        assert step.speedup.value == pytest.approx(0.0049 / 0.00245, rel=0.03)

    def test_declined_where_the_cores_are_full(self) -> None:
        world = JPEGS.but(workers=4, cores=4.0)
        assert declined(world, "workers") == (
            "more workers than the 4 in use would not help, 4 cores have no more to give: 8 workers would give 0.90x (0.83-0.98) "
            "(predicted, no other number was tried)"
        )

    def test_counts_around_todays_are_told_where_none_was_tried(self) -> None:
        world = JPEGS.but(workers=4, cores=16.0)
        assert declined(world, "workers-2") == (
            "2 workers would give 0.50x (0.42-0.59) of today's throughput (predicted, no other number was tried)"
        )
        assert proposed(world, "workers-16").speedup.value == pytest.approx(4.0, rel=0.02)

    def test_declined_where_the_trial_settles_nothing(self) -> None:
        world = JPEGS.but(found={"trials": {"workers-4": [(900.0, 500.0), (300.0, 500.0)]}, "seconds": 60.0})
        why = declined(world, "workers-4")
        assert why.endswith("is too uncertain to act on; --budget 180 narrows it")

    def test_declined_where_shared_memory_is_too_small(self) -> None:
        small = Machine(system="Linux", kernel="6.1", effective_cores=4.0, shm_free_bytes=67_108_864)
        assert (
            declined(self.TRIED, "workers-4", machine=small)
            == "4 workers hold up to 231 MB of batches in /dev/shm, where 67.1 MB are free"
        )

    def test_workers_that_were_not_tried_have_to_fit_into_memory(self) -> None:
        """Eight, of about 60 MB and 58 MB of batches each, where sixteen would be quicker; sixteen where those seen are small."""
        room = Machine(system="Linux", kernel="6.1", effective_cores=16.0, memory_available_bytes=800_000_000)
        world = JPEGS.but(workers=4, cores=16.0)
        assert isinstance(world.step_called("workers-16"), Proposed)
        assert isinstance(world.step_called("workers-8", machine=room), Proposed)
        small = world.but(facts={"worker.uss_bytes": 1e6})
        assert isinstance(small.step_called("workers-16", machine=room), Proposed)
        none = Machine(system="Linux", kernel="6.1", effective_cores=16.0, memory_available_bytes=50_000_000)
        assert declined(world, "workers", machine=none) == (
            "16 workers would take about 1.41 GB more of memory, where 50.0 MB are left"
        )

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
        return SLOW_NETWORK.but(arms={"storage-from-memory": gain}, found={"blocks": blocks}, ops={})

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

    def test_declined_where_it_gains_next_to_nothing(self) -> None:
        assert declined(JPEGS, "cache-source") == "would gain under 3 %: 1.02x (1.01-1.02)"

    def test_declined_for_streams(self) -> None:
        assert declined(STREAM, "cache-source") == "an IterableDataset has no index that records could be looked up by"

    def test_declined_where_nothing_is_read(self) -> None:
        assert declined(JPEGS.but(storage=0.0), "cache-source") == "nothing is read from storage while samples are made"

    def test_declined_where_no_bytes_were_seen(self) -> None:
        world = SLOW_NETWORK.but(source_bytes=0.0)
        assert declined(world, "cache-source") == "storage takes 10.0 ms a sample, but no bytes were seen that could be kept"

    def test_declined_where_no_client_that_is_known_reads(self) -> None:
        world = SLOW_NETWORK.but(ops={Stage.STORAGE: ("http.client.request",)})
        assert declined(world, "cache-source").startswith("samples read through http.client.request, for which a source cache")
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

    def test_declined_for_small_images(self) -> None:
        world = JPEGS.but(facts={"decoded_bytes": 3 * 100_000.0})
        assert declined(world, "cache-resized-256") == (
            "the images are small already: 0.10 megapixels, 256 pixels on the shorter side leave 87 % of them"
        )

    def test_declined_for_texts(self) -> None:
        assert declined(TEXTS, "cache-resized-256") == "no operation that decodes pictures was seen"


class TestCacheDecoded:
    def test_proposed(self) -> None:
        step = proposed(TEXTS.with_arms(), "cache-decoded")
        assert step.why == "Reading and decoding take 2.05 ms a sample; reading a record of 2.05 kB back takes about 10.1 µs"
        assert step.disk_bytes == pytest.approx(50_000 * 2048)

    @pytest.mark.parametrize(("bytes", "told"), [(2048.0, "25.0 µs"), (162_048.0, "15.0 µs"), (1_602_048.0, "12.5 µs")])
    def test_reading_takes_what_it_took(self, bytes: float, told: str) -> None:
        """What the record that was tried holds besides need not be copied; half of its time is the least that is believed."""
        kept = KeptRecord(exactly(25e-6), bytes)
        step = proposed(TEXTS.but(found={"record": kept}).with_arms(), "cache-decoded")
        assert step.why.endswith(f"reading a record of 2.05 kB back takes about {told}")

    def test_declined_where_no_record_can_hold_a_sample(self) -> None:
        world = TEXTS.but(found={"record": KeptRecord(why_not="a my.Graph: records hold numbers, text, bytes")})
        assert declined(world, "cache-decoded") == (
            "a sample was to be stored, and could not be: a my.Graph: records hold numbers, text, bytes"
        )
        assert isinstance(world.but(augment=0.002).step_called("cache-decoded"), Proposed), "what is decoded is another thing"

    def test_worth_what_the_loader_over_such_records_showed(self) -> None:
        kept = KeptRecord(exactly(25e-6), 2048.0, gain=Interval(7.0, 6.5, 7.5), pairs=3)
        step = proposed(TEXTS.but(found={"record": kept}).with_arms(), "cache-decoded")
        assert step.speedup == kept.gain and step.measured
        assert step.why.endswith("reading a record of 2.05 kB back takes about 25.0 µs, and the loader was run over a few of them")

    def test_what_is_left_to_be_done_is_not_seen_so(self) -> None:
        """Finished samples are the most that any cache brings."""
        ops = {Stage.DECODE: ("json.loads",), Stage.AUGMENT: ("mine.noise",)}
        world = TEXTS.but(augment=0.0002, ops=ops)
        alone = proposed(world.with_arms(), "cache-decoded").speedup
        assert not proposed(world.with_arms(), "cache-decoded").measured
        kept = KeptRecord(exactly(10e-6), 2048.0, gain=exactly(0.5 * alone.value), pairs=3)
        assert proposed(world.but(found={"record": kept}).with_arms(), "cache-decoded").speedup.value == 0.5 * alone.value
        kept = KeptRecord(exactly(10e-6), 2048.0, gain=exactly(2 * alone.value), pairs=3)
        assert proposed(world.but(found={"record": kept}).with_arms(), "cache-decoded").speedup.value == pytest.approx(
            alone.value, rel=0.05
        )

    def test_from_the_disk_it_is_not_worth_what_it_was_in_memory(self) -> None:
        kept = KeptRecord(exactly(25e-6), 2048.0, gain=exactly(7.0), pairs=3)
        world = JPEGS.but(
            ops={Stage.DECODE: ("PIL.Image.load",)}, augment=0.0, arms={"real-cold": exactly(0.5)}, found={"record": kept}
        )
        assert declined(world, "cache-decoded").startswith("would be slower: 0.1")

    def test_declined_where_it_fits_nowhere(self) -> None:
        assert declined(JPEGS, "cache-decoded") == (
            "the cache would take 42.9 GB, more than the 16.0 GB of free memory, and how fast this disk reads was not measured"
        )

    def test_read_from_the_disk_where_that_was_measured(self) -> None:
        """A cold epoch at half speed: the disk takes 4.9 ms for each 100 kB, so 857 kB from it are no gain."""
        world = JPEGS.but(arms={"real-cold": exactly(0.5)})
        assert declined(world, "cache-decoded").startswith("would be slower: 0.1")

    def test_declined_where_nothing_is_decoded(self) -> None:
        assert declined(JPEGS.but(decode=0.0), "cache-decoded") == "nothing is decoded"

    def test_declined_where_another_split_is_better(self) -> None:
        world = TEXTS.but(
            augment=0.002, ops={Stage.DECODE: ("json.loads",), Stage.AUGMENT: ("Normalize",)}, source_bytes=5000.0
        ).with_arms()
        assert declined(world, "cache-decoded") == (
            "cache-sample gains 26.2x (24.1-28.6) for 102 MB of disk, this 1.94x (1.87-2.02) for 102 MB"
        )


class TestCacheSample:
    FIXED = {Stage.DECODE: ("PIL.Image.load",), Stage.AUGMENT: ("Resize", "CenterCrop", "ToTensor")}
    SMALL = {"length": 5000}

    def test_everything_is_kept_where_nothing_is_random(self) -> None:
        step = proposed(JPEGS.but(ops=self.FIXED, settings=self.SMALL).with_arms(), "cache-sample")
        assert step.why == (
            "Everything up to ToTensor takes 9.20 ms a sample and always gives the same; reading a record of 602 kB back takes "
            "about 47.6 µs"
        )
        assert step.speedup.value == pytest.approx(0.0049 / ((0.0002 + 0.0004 + 0.0000476) / 2), rel=0.02)

    def test_declined_where_no_record_can_hold_a_sample(self) -> None:
        world = JPEGS.but(
            ops=self.FIXED, settings=self.SMALL, found={"record": KeptRecord(why_not="it is nested more than 32 deep")}
        )
        assert declined(world, "cache-sample") == "a sample was to be stored, and could not be: it is nested more than 32 deep"

    def test_the_random_rest_stays_live(self) -> None:
        ops = {Stage.DECODE: ("PIL.Image.load",), Stage.AUGMENT: ("Resize", "RandomHorizontalFlip", "ToTensor")}
        step = proposed(JPEGS.but(ops=ops, settings=self.SMALL), "cache-sample")
        assert step.why.startswith("Everything up to Resize takes 7.20 ms a sample")

    def test_proposed_for_functions_of_any_name_where_samples_came_out_the_same(self) -> None:
        ops = {Stage.DECODE: ("soundfile.read",), Stage.AUGMENT: ("scipy.signal.resample_poly",)}
        own = JPEGS.but(augment=0.02, ops=ops, settings=self.SMALL)
        assert declined(own, "cache-sample").endswith("may be random: the same as cache-decoded")
        step = proposed(own.but(found={"same_every_time": True}), "cache-sample")
        assert "a few that were made twice came out the same" in step.why
        assert step.risk is not None

    def test_declined_where_the_first_operation_is_random(self) -> None:
        assert declined(JPEGS, "cache-sample") == (
            "the first operation on decoded samples, RandomResizedCrop, may be random: the same as cache-decoded"
        )

    def test_declined_without_augmentation(self) -> None:
        assert declined(TEXTS, "cache-sample") == "nothing is done to samples after decoding, so this is the same as cache-decoded"

    def test_declined_where_sizes_are_unknown(self) -> None:
        world = JPEGS.but(ops=self.FIXED, facts={"batch.bytes": 0.0})
        assert declined(world, "cache-sample") == "how large a record would be could not be measured, so neither can its worth"


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

    def test_declined_where_nothing_can_be_moved(self) -> None:
        moving = Moving(frozenset(), "MyOwn stays: it is not known what it does")
        assert declined(JPEGS, "augment-gpu", cuda=True, moving=moving) == "MyOwn stays: it is not known what it does"

    def test_declined_without_one(self) -> None:
        assert declined(JPEGS, "augment-gpu") == (
            "no CUDA device here; augmentation takes 3.00 ms a sample (RandomResizedCrop most), so beside a GPU with time to "
            "spare it would "
            "gain 1.44x (1.32-1.57)"
        )

    def test_declined_without_augmentation(self) -> None:
        assert declined(JPEGS.but(augment=0.0), "augment-gpu", cuda=True) == "nothing is done to samples after decoding"

    def test_declined_for_texts(self) -> None:
        assert declined(TEXTS.but(augment=0.001), "augment-gpu", cuda=True) == "samples are text: tokens are not augmented on a GPU"

    def test_declined_where_the_step_limits(self) -> None:
        assert declined(STEP_BOUND, "augment-gpu", cuda=True) == (
            "the training step limits already: work moved to the GPU would slow it down"
        )


class TestDecodeGpu:
    WHOLE = Moving(frozenset({"RandomResizedCrop"}))

    def test_proposed_beside_a_gpu_as_the_most_it_can_bring(self) -> None:
        step = proposed(JPEGS.with_arms(), "decode-gpu", cuda=True, whole=self.WHOLE)
        assert step.speedup.low == 1.0 < 2 < step.speedup.value
        assert "which is the most that it can bring" in step.why
        assert step.command == "pipefix swap TARGET --to dali"
        assert "dali" in proposed(JPEGS, "decode-gpu", cuda=True, whole=self.WHOLE).command

    def test_declined_with_the_reason(self) -> None:
        assert declined(JPEGS, "decode-gpu", cuda=True) == "whether DALI can make these samples could not be told"
        why = declined(JPEGS, "decode-gpu", cuda=True, whole=Moving(frozenset(), "the dataset lists no files"))
        assert why == "DALI cannot make these samples: the dataset lists no files"
        assert declined(TEXTS, "decode-gpu", cuda=True) == "nothing that decodes pictures was seen"
        assert declined(JPEGS, "decode-gpu").startswith("no CUDA device here; decoding and augmenting take 9.00 ms a sample")
        assert declined(STEP_BOUND, "decode-gpu", cuda=True, whole=self.WHOLE) == (
            "the training step limits already: work moved to the GPU would slow it down"
        )


class TestHandoverSlots:
    def test_proposed(self) -> None:
        step = proposed(JPEGS.but(ipc=0.004), "handover-slots")
        assert step.why == "Handing over 19.3 MB takes 131 ms a batch; through memory that was used before about 3.66 ms"
        slot = (60e-6 + 19_267_840 / 5.5e9) / 32
        assert step.speedup.value == pytest.approx(0.0134 / (0.0094 + slot), rel=1e-3)

    def test_declined_where_the_hand_over_is_cheap(self) -> None:
        assert declined(JPEGS.but(ipc=0.0001), "handover-slots") == "would gain under 3 %: 1.00x"

    def test_declined_without_workers(self) -> None:
        assert declined(ALONE, "handover-slots") == "no workers: nothing crosses a process border"

    def test_declined_for_arrays(self) -> None:
        world = JPEGS.but(facts={"batch.piped_bytes": 19_000_000.0})
        assert declined(world, "handover-slots") == (
            "batches are not tensors but arrays or bytes, which go through a pipe: return tensors from collate_fn first"
        )

    def test_declined_where_nobody_looked(self) -> None:
        assert declined(JPEGS.but(found={"looks": {}}), "handover-slots") == "how large a batch is could not be looked at"


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

    def test_declined_where_it_is_a_copy_already(self) -> None:
        assert declined(JPEGS.but(collate=0.0001), "collate-faster") == "would gain under 3 %: 1.00x"

    def test_declined_without_cost_or_size(self) -> None:
        computing = self.SLOW.but(settings={"collate": "spectra"}, collate=0.1)
        assert declined(computing, "collate-faster") == (
            "spectra takes 3.20 s a batch, where a copy of its 19.3 MB takes 3.21 ms: it computes, and what of that can go only "
            "its author knows"
        )
        assert declined(JPEGS.but(collate=0.0), "collate-faster") == "collating takes no time"
        assert declined(self.SLOW.but(found={"looks": {}}), "collate-faster") == (
            "how large a batch is could not be looked at, so how fast it could be collated is not known"
        )


class TestPinning:
    COPIES = {"transfer": {"pinned": 0.001, "pageable": 0.004, "bytes": 19_267_840.0}}
    WORLD = STEP_BOUND.but(step=0.02 / 32, decode=0.0001, augment=0.0001, found=COPIES)

    def test_proposed_where_the_step_waits_for_its_copy(self) -> None:
        step = proposed(self.WORLD, "pinning", cuda=True)
        assert step.why == "Copying a batch of 19.3 MB takes 4.00 ms from ordinary memory and 1.00 ms from pinned"
        assert step.command == "DataLoader(..., pin_memory=True) and batch.to('cuda', non_blocking=True) in the step"
        before = 0.02 / 32 + 0.0001
        assert step.speedup.value == pytest.approx(before / (before - 0.003 / 32), rel=1e-3)

    def test_declined(self) -> None:
        assert declined(JPEGS, "pinning") == "no CUDA device here: pinned memory only speeds up copies to one"
        assert declined(JPEGS, "pinning", cuda=True) == "the copy of a batch to the device could not be measured"
        assert declined(JPEGS.but(settings={"pin_memory": True}), "pinning", cuda=True) == "pin_memory=True is set already"
        even = {"transfer": {"pinned": 0.004, "pageable": 0.004}}
        assert (
            declined(JPEGS.but(found=even), "pinning", cuda=True)
            == "a batch is copied as fast without: 4.00 ms against 4.00 ms pinned"
        )
        assert declined(JPEGS.but(found=self.COPIES), "pinning", cuda=True) == "would gain under 3 %: 1.00x"


class TestEarlyCopy:
    COPIES = {"transfer": {"pinned": 0.002, "pageable": 0.004, "exposed": 0.005, "bytes": 19_267_840.0}}
    WORLD = STEP_BOUND.but(step=0.02 / 32, decode=0.0001, augment=0.0001, found=COPIES)

    def with_copies(self, **copies: float) -> World:
        return self.WORLD.but(found={"transfer": {**self.COPIES["transfer"], **copies}})

    def test_proposed_where_steps_wait_for_their_copies(self) -> None:
        step = proposed(self.WORLD, "early-copy", cuda=True)
        assert step.why == (
            "Each step waits 5.00 ms for its copy, which takes 2.00 ms from pinned memory and could run beside the step before "
            "(20.0 ms)"
        )
        assert step.speedup.value == pytest.approx(25.1 / 20.1, rel=0.02)
        assert "device='cuda'" in step.command

    def test_what_is_longer_than_the_step_stays(self) -> None:
        longer = proposed(self.with_copies(exposed=0.03, pinned=0.03), "early-copy", cuda=True)
        assert longer.speedup.value == pytest.approx(50 / 30, rel=0.05)
        why = declined(self.with_copies(exposed=0.005, pinned=0.03), "early-copy", cuda=True)
        assert why == "a copy from pinned memory takes 30.0 ms and the step 20.0 ms: too little to hide it behind"

    def test_declined(self) -> None:
        assert declined(self.WORLD, "early-copy") == "no CUDA device here: nothing is copied to one"
        assert declined(JPEGS, "early-copy", cuda=True) == "how long a step waits for its copy could not be measured"
        hidden = declined(self.with_copies(exposed=0.0), "early-copy", cuda=True)
        assert hidden == "the step waits for no copy: it is hidden behind other work already"


class TestPersistentWorkers:
    SHORT = JPEGS.but(settings={"length": 3200}, found={"epoch_restart": 4.0, "first_batch": 4.5})

    def test_proposed_for_short_epochs(self) -> None:
        step = proposed(self.SHORT, "persistent-workers")
        assert step.why == "Every epoch waits 4.00 s for its first batch, 20 % of its 19.7 s"
        steady = 3200 * 0.0049
        assert step.speedup.value == pytest.approx((4 + steady) / (0.0098 * 32 + steady))
        assert step.command == "DataLoader(..., persistent_workers=True)"

    def test_a_slow_step_does_not_hide_it(self) -> None:
        world = STEP_BOUND.but(settings={"length": 640}, found={"epoch_restart": 4.0})
        assert proposed(world, "persistent-workers").speedup.value > 1.2

    def test_declined(self) -> None:
        assert declined(ALONE, "persistent-workers") == "no workers: there is none to start anew for each epoch"
        kept = JPEGS.but(settings={"persistent_workers": True})
        assert declined(kept, "persistent-workers") == "persistent_workers=True is set already"
        assert (
            declined(JPEGS, "persistent-workers") == "how long an epoch takes to begin was not measured: the time budget was spent"
        )
        endless = JPEGS.but(settings={"length": None}, found={"epoch_restart": 4.0})
        assert declined(endless, "persistent-workers") == (
            "an epoch takes 4.00 s to begin, but the dataset tells no length to compare it with"
        )
        sampled = self.SHORT.but(settings={"length": 3200, "drawn": 1_000_000})
        assert declined(sampled, "persistent-workers") == "would gain under 3 %: 1.00x"
        long = JPEGS.but(found={"epoch_restart": 2.0})
        assert declined(long, "persistent-workers") == "would gain under 3 %: 1.01x (1.00-1.01)"


class TestTailScheduling:
    TAIL = {"p50": 0.004, "p95": 0.01, "p99": 0.3, "max": 0.5, "samples": 4000.0, "blocked": 0.0016}
    """Of 6.5 ms a sample, 1.6 ms went into waiting behind a slow one."""
    WORLD = JPEGS.but(tail=TAIL)

    def test_proposed(self) -> None:
        measurement, diagnosis = self.WORLD.measurement(), self.WORLD.diagnosis()
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

    def test_declined(self) -> None:
        assert declined(ALONE.but(tail=self.TAIL), "tail-scheduling") == "no workers: no batch can overtake another"
        assert declined(self.WORLD.but(workers=1), "tail-scheduling") == "1 worker: no batch can overtake another"
        assert declined(self.WORLD.but(settings={"in_order": False}), "tail-scheduling") == "in_order=False is set already"
        assert declined(JPEGS, "tail-scheduling") == "how unequal samples are was not measured"
        alike = JPEGS.but(tail={**self.TAIL, "p99": 0.006})
        assert declined(alike, "tail-scheduling") == "samples are alike: the slowest in a hundred takes 1.50x the median (4.00 ms)"
        assert declined(self.WORLD, "tail-scheduling") == "would gain under 3 %: 1.00x"
        tiny = JPEGS.but(tail={**self.TAIL, "p50": 1e-6, "p99": 20e-6})
        assert declined(tiny, "tail-scheduling").startswith("the slowest sample in a hundred takes 20.0 µs, too little to hold up")

    def test_samples_that_wait_for_a_cpu_are_not_slow_themselves(self) -> None:
        measurement, diagnosis = self.WORLD.measurement(), self.WORLD.diagnosis()
        diagnosis.sample, diagnosis.starved = exactly(0.0065), 0.4
        step = find(advise(measurement, diagnosis, machine=MACHINE), "tail-scheduling")
        assert isinstance(step, Declined)
        assert step.why.startswith("samples seem unequal, but for 40 % of the time the pipeline was ready to run and had no CPU")


def with_threads(world: World, process: int, thread: int) -> World:
    """A real arm whose workers used ``process`` nanoseconds of CPU time a batch, ``thread`` of them in their main threads."""
    rows = []
    for number in range(8):
        trace = BatchTrace(1, 1, number % 2, number % 2, 32, number * 1000, 0, 0, thread, (number // 2) * process)
        rows.append(Row(0, 1, 2, 0, 0, trace))
    block = Block("real", tuple(rows), 32 * 8 * world.seconds, 32 * 8)
    return world.but(found={**world.found, "blocks": [block]})


class TestThreadCaps:
    CROWDED = World(decode=0.008, workers=4, cores=4.0, facts={"worker.busy_threads": 4.0, "worker.cv2_threads": 4.0})

    def test_proposed_where_threads_fight_over_cores(self) -> None:
        step = proposed(with_threads(self.CROWDED, 2_000_000, 1_000_000), "thread-caps")
        assert step.why == "4 workers run 20 busy threads on 4 cores and use 2.00x the CPU time of their main threads"
        assert step.speedup == Interval(2**0.5, 1.0, 2.0)
        assert step.command == "worker_init_fn=lambda worker: cv2.setNumThreads(0), and OMP_NUM_THREADS=1 in the environment"

    def test_declined(self) -> None:
        assert declined(ALONE, "thread-caps") == "no workers: library threads have the cores to themselves"
        assert declined(JPEGS, "thread-caps") == "libraries run no busy threads of their own inside the workers"
        counted = World(decode=0.008, workers=4, cores=4.0, facts={"worker.busy_threads": 0.0})
        assert declined(with_threads(counted, 2_000_000, 1_000_000), "thread-caps") == (
            "libraries run no busy threads of their own inside the workers"
        ), "Python's own thread that hands batches over takes CPU time as well"
        waited_for = with_threads(self.CROWDED, 12_000_000, 1_000_000)
        assert declined(waited_for, "thread-caps") == (
            "the main threads of the workers compute only 8.3 % of what their threads do: they wait for them, and would wait "
            "longer for fewer"
        )
        roomy = self.CROWDED.but(cores=32.0)
        assert declined(roomy, "thread-caps") == "4 workers with 5 busy threads fit on 32 cores"
        idle = self.CROWDED.but(workers=1, cores=4.0)
        assert declined(idle, "thread-caps") == "5 threads share 4 cores, but only 25 % of their time is used"
        harmless = with_threads(self.CROWDED, 1_010_000, 1_000_000)
        assert declined(harmless, "thread-caps") == (
            "20 threads share 4 cores, but those beside the main ones use next to no CPU time"
        )


class TestBatchedFetch:
    def test_proposed_for_a_store_that_answers_late(self) -> None:
        step = proposed(SLOW_NETWORK, "batched-fetch")
        assert step.why == "Reading takes 10.0 ms a sample, 95 % of it waiting; 8 requests at once share the wait"
        assert step.speedup.value == pytest.approx(0.0124 / (0.0024 + 0.01 * (0.05 + 0.95 / 8)))

    def test_declined(self) -> None:
        assert declined(SLOW_NETWORK.but(settings={"kind": "batched"}), "batched-fetch") == "the dataset has __getitems__ already"
        assert declined(STREAM, "batched-fetch") == "an IterableDataset is not asked for indices"
        single = SLOW_NETWORK.but(settings={"batch_size": 1})
        assert declined(single, "batched-fetch") == "a batch holds 1 sample: there is nothing to fetch together"
        assert declined(JPEGS.but(storage=0.0), "batched-fetch") == "nothing is read from storage while samples are made"
        assert declined(JPEGS, "batched-fetch") == "reading (200 µs a sample) computes rather than waits, so nothing would overlap"
        short = SLOW_NETWORK.but(storage=50e-6)
        assert declined(short, "batched-fetch") == (
            "reading waits 47.5 µs a sample, less than it takes to have other threads wait instead"
        )
        little = JPEGS.but(computing={"storage": 0.0})
        assert declined(little, "batched-fetch") == "waiting for storage is 2.0 % of a sample's making"


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

    def test_declined(self) -> None:
        assert declined(JPEGS, "batched-tokenisation") == "no tokeniser was seen"
        assert declined(TEXTS, "batched-tokenisation") == (
            "tokenizers.Tokenizer.encode is native code: a list of texts takes one core as long as one text after the other"
        )
        single = TEXTS.but(settings={"batch_size": 1})
        assert declined(single, "batched-tokenisation") == "a batch holds 1 sample: there is nothing to tokenise together"
        together = TEXTS.but(ops={Stage.DECODE: ("tokenizers.Tokenizer.encode_batch",)})
        assert declined(together, "batched-tokenisation") == "tokenizers.Tokenizer.encode_batch is given whole batches already"
        quick = TEXTS.but(decode=0.00001, augment=0.01, ops=TEXTS.ops)
        assert declined(quick, "batched-tokenisation") == "tokenising takes 10.0 µs a sample, 0.1 % of its making"


EXACT = FusedCall(left=Interval(0.4, 0.38, 0.42), pictures=16, apart="pixels equal the list's own", draws=True)
CLOSE = FusedCall(
    left=Interval(0.3, 0.28, 0.32), pictures=16, draws=True,
    apart="pixels differ from the list's own by 0.041 levels of 255 on average, 1.00 at the 99th percentile, 1.0 at most",
)  # fmt: skip


def fused(world: World = JPEGS, **calls: FusedCall) -> World:
    return world.but(found={"fused": calls})


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

    def test_declined(self) -> None:
        assert declined(JPEGS, "fuse") == (
            "whether one call can make a sample was not tried: that takes a budget of 8 s, and decoding and transforming that are "
            "10 % of a sample's making"
        )
        assert declined(STREAM, "fuse") == (
            "an IterableDataset is not asked for indices, so its samples cannot be made by one call each"
        )
        odd = FusedCall(why_not="the dataset has no transforms (an attribute such as transform)")
        assert declined(fused(exact=odd), "fuse") == (
            "one call cannot make these samples: the dataset has no transforms (an attribute such as transform)"
        )

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
