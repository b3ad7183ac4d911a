"""`FastLoader`, and how a batch of it comes about.

`fast_loader.FastLoader` takes `DataLoader`'s arguments and its own. At `iter()` it decides who makes the epoch's batches, and says
why (`explain`):

- worker processes (`workers.iterator`), or this process where there are none (`iterator`): subclasses of torch's own iterators;
- threads of this process (`fusing.threads`), for pictures that one native call each reads, decodes, transforms and writes;
- DALI, where a plan has it so (`planning.by_dali`); `DataLoader` itself, where this torch's insides are not those that the
  iterators know (`plain_epoch`, `pipefix.hooks.torch_internals`).

Which samples a batch has, their order, seeds and errors are torch's own in each of them. Then, batch by batch:

1. The sampler's indices go to a worker: to each in turn, or, where samples have random numbers of their own, to whichever is free
   (one queue for all: `workers.iterator.with_one_queue`). `workers.start` is what a worker does first, `workers.dataset_once`
   how a large dataset comes to workers that are not forked, `workers.deaths` what is told of one that died.
2. Samples are read (`policy.read_policy`) from the user's dataset, or from what a plan puts in its place (`planning.planned`: a
   cache, transforms that move to the batch): one after the other, or by threads (`policy.sample_threads`). What cannot be read is
   an error, or is left out and listed (`policy.quarantine`).
   With ``fuse=`` the pictures of a batch are made by native calls: `fusing.fusion` decides, `fusing.source` and `fusing.batches`
   make them where dataset and transforms are of a known kind as a whole, `fusing.in_part` where only a part of them is.
3. They are collated straight into a slot of shared memory (`slots.batch_in_slot`, `slots.arena`), and only its place is sent. The
   slot is free again when the last view of the batch is gone. `slots.portable` is the same for any loader, as its collate function.
4. The iterator receives the batch, copies it to the device on a stream of its own (`device`), and does to it what is done to whole
   batches (``augment=``, a plan's module).
5. What the consumer waited and worked is written on the loader's meter (``metering``), which `stats()` and `pipefix.watch` read.

`resume` tells where an epoch stands and goes on from there; `ranks` deals what is left of it to another number of ranks.
"""
