"""DALI's pipeline of a list of operations: read, decode, the slots, the conversion."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.pipeline import do_not_convert

from pipefix.augment import dali_graph
from pipefix.augment.operation import Op


@dataclass(frozen=True)
class Graph:
    """A list of operations as DALI runs it: slots on bytes, a conversion, slots on floating point, and what is left to others."""

    listed: tuple[Op, ...]
    """What the graph does."""
    slots: tuple[dali_graph.Slot, ...]
    after: tuple[dali_graph.Slot, ...]
    """Slots after the conversion."""
    to_float: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]
    rest: tuple[Op, ...]
    """What a module must do to the batch afterwards."""
    why: str = ""
    """Why the first of these is left."""


def made(
    of: Graph, feed: Callable[[], tuple[Any, ...]], by_name: bool, decoder: str, *, build: bool = True, **settings: Any
) -> Any:
    """DALI's pipeline. Not built, it asks for no driver."""
    make = pipeline_def(_nodes, enable_conditionals=True, exec_dynamic=decoder == "mixed", **settings)
    pipe = make(of, feed, by_name, decoder)
    if build:
        pipe.build()
    _made.add(pipe)
    return pipe


_made: weakref.WeakSet[Any] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """A forked process has none of a pipeline's threads: whoever collected the pipeline there would wait for them, and crash."""
    for pipe in _made:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pipe._pipe))  # for ever: nor is what lies behind it taken down
        pipe._pipe = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _nodes(of: Graph, feed: Callable[[], tuple[Any, ...]], by_name: bool, decoder: str) -> Any:
    """The graph: read, decode (only the crop where the list begins with one), the slots, the conversion.

    DALI rewrites this function and those it calls, to make splits of the batch from conditions. What needs no condition is kept
    from that.
    """
    encoded, parameters = _inputs(of, feed, by_name)
    images, first = _decoded(of, encoded, parameters, decoder)
    before, mirror = len(of.slots), 0
    if before > first and of.slots[-1].name == "hflip" and not of.slots[-1].always:
        # Turned over while it is converted anyway.
        before, mirror = before - 1, fn.cast(parameters[before - 1]["happens"], dtype=types.INT32)
    for place in range(first, before):
        images = _perhaps(of.slots[place], images, parameters[place])
    images = _converted(of, images, mirror)
    for place in range(len(of.after)):
        images = _perhaps(of.after[place], images, parameters[len(of.slots) + place])
    return images


@do_not_convert
def _inputs(of: Graph, feed: Callable[[], tuple[Any, ...]], by_name: bool) -> tuple[Any, list[dict[str, Any]]]:
    """Encoded bytes, and the parameters of every slot by name."""
    slots = (*of.slots, *of.after)
    keys = [[*([] if slot.always else ["happens"]), *dali_graph.neutral(slot)] for slot in slots]
    fed = list(fn.external_source(source=feed, num_outputs=1 + sum(map(len, keys)), batch=True, no_copy=True))
    # Mapped, each file costs more in pages that are mapped and unmapped than in bytes that are copied.
    encoded = fn.io.file.read(fed.pop(0), dont_use_mmap=True) if by_name else fed.pop(0)
    return encoded, [{key: fed.pop(0) for key in own} for own in keys]


@do_not_convert
def _decoded(of: Graph, encoded: Any, parameters: list[dict[str, Any]], decoder: str) -> tuple[Any, int]:
    """The pictures, and how many slots are done with that."""
    settings = {"device": decoder, "output_type": types.RGB, "adjust_orientation": False}
    if not of.slots or of.slots[0].name != "resized_crop" or not of.slots[0].always:
        return fn.decoders.image(encoded, **settings), 0
    window = {"start": parameters[0]["start"], "shape": parameters[0]["shape"], "axis_names": "HW"}
    images = fn.decoders.image_slice(encoded, **window, **settings)
    return dali_graph.resized(of.slots[0].op, images, list(of.slots[0].op.size)), 1  # type: ignore[attr-defined]


@do_not_convert
def _converted(of: Graph, images: Any, mirror: Any) -> Any:
    """Channels first, and normalised floating point where the list has it."""
    if not of.to_float:
        return fn.crop_mirror_normalize(images, dtype=types.UINT8, output_layout="CHW", mean=[0.0], std=[1.0], mirror=mirror)
    mean, std = [255 * one for one in of.mean], [255 * one for one in of.std]
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std, mirror=mirror)


def _perhaps(slot: dali_graph.Slot, images: Any, values: dict[str, Any]) -> Any:
    if slot.always:
        return dali_graph.apply_slot(slot, images, values)
    return _chosen(slot, images, values, values["happens"])


def _chosen(slot: dali_graph.Slot, images: Any, values: dict[str, Any], happens: Any) -> Any:
    if happens:
        images = dali_graph.apply_slot(slot, images, values)
    return images
