"""A survey in a process of its own, so that what samples open there is not inherited by the workers that make parts."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import msgspec

from pipefix.caches import cut as cuts
from pipefix.caches import pool
from pipefix.caches.blueprint import Blueprint
from pipefix.caches.manifest import Recipe
from pipefix.caches.streams import is_stream
from pipefix.caches.survey import Surveyed, survey
from pipefix.caches.witness import Witness
from pipefix.hooks.install import loaded_libraries


def survey_apart(dataset: Any, recipe: Recipe, target: str) -> Surveyed:
    """`survey` in a process of its own: connections and files that samples open there are not inherited by those who make parts."""
    if is_stream(dataset) or not pool.can_fork():
        return survey(dataset, recipe, target)

    def look(place: Any) -> bytes:
        Witness.place = place
        found = survey(dataset, recipe, target)
        return msgspec.msgpack.encode(
            (loaded_libraries(), found.blueprint, found.record_bytes, found.source_bytes, found.unseen_bytes)
        )

    told = pool.apart(look)
    libraries, blueprint, *sizes = msgspec.msgpack.decode(told, type=tuple[list[str], Blueprint, float, float, float])
    for library in libraries:  # what a sample imports must have its hook before a worker's first sample
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    cut = blueprint.cut
    return Surveyed(dataset, blueprint, cuts.holders(dataset) if cut is not None and cut.attribute is not None else [], *sizes)
