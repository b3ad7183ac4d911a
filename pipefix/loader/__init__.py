"""`FastLoader`, and how a batch of it comes about.

`fast_loader` takes `DataLoader`'s arguments and its own, decides for each epoch who makes its batches, and says why (`explain`).
The iterators are subclasses of torch's: which samples a batch has, their order, seeds and errors are torch's own. What every
iterator does beside that (samples read under a policy, batches metered, brought to a device, augmented) is in `iterator`.

A batch goes through these folders, in this order:

- ``planning``: a plan file's dataset (read from a cache, asked for one sample or many) and its arguments.
- ``policy``: a sample is read: what becomes of one that cannot be, how long it may take, whose random numbers it draws; the list of
  those that were set aside.
- who makes it, one of:
  ``workers``: worker processes, each of which makes the batches whose turn is its own, or whichever comes next; how they are
  started and seen to have died.
  ``threads``: threads of this process, for fused calls.
  ``fusing``: one native call a picture, which reads, decodes, transforms and writes it into the batch.
- ``slots``: the batch is made in reusable shared memory, and only its place travels to the training process; for any
  loader as its collate function (`slots.portable`). Where that is slower than torch's way, torch's is taken (`slots.comparison`).
- `device`: it is copied to the device on a stream of its own.
- ``metering``: what the consumer waited and worked, and what each stage cost where batches are made; `pipefix.watch` reads it.

`resume` says where an epoch stands, `limits` what memory and cores there are, and `plain_epoch` stands in for all of it where
torch's insides are not those that the iterators know (`pipefix.hooks.torch_internals`).
"""
