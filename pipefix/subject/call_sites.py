"""Times expressions in the user's own code that no hook knows: library calls, subscripts, comprehensions.

The first samples, before any is recorded, tell which expressions take a part of a sample that is worth a name; then those alone are
timed, recorded and replaced, as operations named by their text and line ("orjson.loads at train.py:14"). Where nothing takes that
much, the code runs as it was compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter_ns, process_time_ns
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from pipefix.hooks.charges import BITS, OWN_BEFORE, OWN_DECODED
from pipefix.hooks.patches import Patches, ReplacedAttribute
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.hooks.snapshot import force
from pipefix.subject import recompile
from pipefix.subject.recompile import Expression, Place
from pipefix.subject.staging import UNKNOWN, VALUES, StageEvidence, data_stage, draws_random
from pipefix.system.resources import childrens_cpu_ns
from pipefix.vocabulary.generators import enclosed
from pipefix.vocabulary.stage import Stage
from pipefix.vocabulary.user_modules import is_users

SHARE = 0.04
"""Part of a sample's time from which on an expression is an operation of its own."""
SHORTEST_NS, OFTEN = 5_000, 8
"""What one evaluation takes at least, on average, times how often a sample has it evaluated, up to so often: below, the clocks
would take as long, and what is recorded of a loop's every step as long to copy."""
WAITING = 0.5
"""What computes for less than this part of its time waits."""
LOOKS = 64
"""Evaluations in a sample after which what is too short for an operation is looked at no more: loops in Python would take hundreds
of times as long, and beside such a loop nothing else would be worth a name."""
TIMED = 9
"""How often looking at nothing is timed."""


class Site:
    """One expression, called in its place."""

    def __init__(self, sites: CallSites, expression: Expression, file: str) -> None:
        self.sites, self.expression = sites, expression
        self.label = f"{expression.text} at {file}:{expression.place[0]}"
        self.spent_ns = self.evaluated = self.crossed = 0
        """Own time and number of evaluations in the last sample, and the stages of hooks that were met inside."""
        self.stage: Stage | None = None
        self.told = False
        """Whether what it is handed tells the stage; else what it gave back did."""
        self.closed = False
        """Whether hooks inside are passed by."""
        self.within: set[str] = set()
        """Operations that it was evaluated in: functions of the user's that are one as a whole, calls that run such functions."""
        self.around = False
        """Whether code of the user's ran inside, whose own expressions are looked at."""
        self.library = ""
        self.computing = 0.0
        """The largest part of an evaluation's time that this process computed: a library's own threads count."""
        self.gives = False
        """Whether it ever gave a value: what gives none works on its arguments, and no recording could stand in for that."""
        self.short = False
        """Whether it was evaluated so often in this sample, and took so little, that it is looked at no more."""

    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        sites, timer = self.sites, self.sites.timer
        if not timer.live or not timer.owns or timer.stage is not None:
            return function(*args, **kwargs)
        if self.short:
            sites.evaluations += 1
            return function(*args, **kwargs)
        take = sites.observed if sites.looks else sites.cut
        return take(self, function, args, kwargs)


class CallSites:
    """The expressions of one process's functions: looked at first, all of them, and then some of them cut."""

    def __init__(self, timer: SampleTimer, patches: Patches, evidence: StageEvidence) -> None:
        self.timer = timer
        self._patches, self._evidence = patches, evidence
        self._sites: dict[tuple[FunctionType, Place], Site] = {}
        self._recompiled: list[ReplacedAttribute] = []
        self.looks = False
        """Whether every expression is looked at, and none cut."""
        self.evaluations = 0
        """Of all expressions so far."""
        self._inner_ns = 0
        """Time of the expressions inside the one that is evaluated."""
        self._begun = 0
        self._sample_ns = 0
        self._looking_ns: int | None = None
        self._has_data = False
        """Whether anything in this sample gave an array: random numbers drawn from then on change it, before they are the data."""

    def observe(self, functions: Iterable[FunctionType]) -> None:
        """Look at every expression of these."""
        self.looks = True
        self._recompile(functions, lambda *_: True)

    def begin(self) -> None:
        if not self.looks:
            return
        if self._looking_ns is None:
            self._looking_ns = self._time_looking()
        for site in self._sites.values():
            site.spent_ns = site.evaluated = 0
            site.short = False
        self._has_data = False
        self._begun = perf_counter_ns()

    def end(self) -> None:
        if self.looks:
            self._sample_ns = perf_counter_ns() - self._begun

    def put_back(self) -> None:
        """Look at none, and cut none."""
        for attribute in self._recompiled:
            self._patches.withdraw(attribute)
        self._recompiled.clear()
        self.looks = False

    def choose(self) -> None:
        """From now on cut what took long in the last sample; all else is as it was. What runs inside an operation is a part of it,
        unless that holds the work of several stages."""
        self.put_back()
        chosen = {key for key, site in self._sites.items() if self._takes_long(site) and self._is_one_operation(site)}
        self._recompile({function for function, _ in chosen}, lambda function, place: (function, place) in chosen)

    def _takes_long(self, site: Site) -> bool:
        shortest_ns = SHORTEST_NS * min(site.evaluated, OFTEN)
        return site.evaluated > 0 and self._own_ns(site) >= max(SHARE * self._sample_ns, shortest_ns * site.evaluated)

    def _own_ns(self, site: Site) -> int:
        """What it took in this sample, without the looking."""
        return site.spent_ns - site.evaluated * (self._looking_ns or 0)

    def _is_one_operation(self, site: Site) -> bool:
        """Of one stage as a whole. What decodes may read its files by itself; what reads none is its own stage's, whatever the
        calls inside are elsewhere."""
        if site.stage is None or site.around or site.within - self.timer.mixed:
            return False
        reads, others = bool(site.crossed & BITS[Stage.STORAGE]), bool(site.crossed & ~BITS[site.stage])
        if others and not reads and not site.told:
            return False  # pixels that a call makes of nothing may be decoded, or be those of its hooks
        site.closed = not reads and others
        return not reads or (site.stage is Stage.DECODE and not site.crossed & ~(BITS[Stage.STORAGE] | BITS[Stage.DECODE]))

    def _time_looking(self) -> int:
        """What is charged to an expression that does nothing."""
        site = Site(self, Expression((0, 0, 0, 0, ""), ""), "")
        each = []
        for _ in range(TIMED):
            before = site.spent_ns
            self.observed(site, lambda: None, (), {})
            each.append(site.spent_ns - before)
        return min(each)

    def _recompile(self, functions: Iterable[FunctionType], wanted: Callable[[FunctionType, Place], bool]) -> None:
        for function, code in recompile.with_sites(functions, self._site, wanted).items():
            self._recompiled.append(self._patches.replace(function, "__code__", code))

    def _site(self, function: FunctionType, expression: Expression) -> Site:
        """The same one each time."""
        key = (function, expression.place)
        if key not in self._sites:
            file = os.path.basename(function.__code__.co_filename)
            site = self._sites[key] = Site(self, expression, file)
            named = function.__globals__.get(expression.text.partition(".")[0])
            site.library = named.__name__ if isinstance(named, ModuleType) else ""  # the text tells it
        return self._sites[key]

    # -- what is done at a site ------------------------------------------------------------------------------------------

    def observed(self, site: Site, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        timer, phase, evaluations = self.timer, self.timer.phase, self.evaluations
        if timer.on_top:
            site.within.add(timer.on_top)
        clock, cpu = perf_counter_ns(), process_time_ns() + childrens_cpu_ns()
        begun, around = timer.own_ns(), self._inner_ns
        self._inner_ns = 0
        with timer.crossings() as crossed:
            try:
                value = function(*args, **kwargs)
            finally:
                spent = timer.own_ns() - begun
                site.spent_ns += spent - self._inner_ns
                site.evaluated += 1
                computed = process_time_ns() + childrens_cpu_ns() - cpu
                site.computing = max(site.computing, computed / max(1, perf_counter_ns() - clock))
                self._inner_ns = around + spent
        if site.evaluated % LOOKS == 0:
            site.short = self._own_ns(site) < OFTEN * SHORTEST_NS * site.evaluated
        site.around |= self.evaluations > evaluations
        self.evaluations += 1
        site.crossed |= crossed()
        site.gives |= value is not None
        if not site.library:
            site.library = _library_of(function, args)
            if site.library and site.library not in site.expression.text:
                site.label = f"{site.expression.text} of {site.library} at {site.label.rpartition(' at ')[2]}"
        owner = _owner(function)
        of_object = () if owner is None or isinstance(owner, (type, ModuleType)) else (owner,)
        handed = (*of_object, *args, *_closed_over(site, function))
        site.told = data_stage((*handed, *kwargs.values())) is not None
        stage = self._evidence.of(site.label, handed, kwargs, phase)
        if stage is UNKNOWN:
            self._evidence.learn(site.label, handed, kwargs, phase, value)
            stage = self._evidence.learned[site.label]
        if self._opens(site, (*handed, *kwargs.values()), phase, value):
            stage = Stage.DECODE
        else:
            # No data are handed over and nothing was read so far: a call makes its value, or has a source that no hook knows.
            of_nothing = phase == OWN_BEFORE and data_stage(handed) is None and not site.crossed & BITS[Stage.STORAGE]
            if (stage is None and isinstance(value, VALUES)) or (stage is Stage.DECODE and of_nothing):
                stage = Stage.DECODE if site.computing >= WAITING else Stage.STORAGE
        if (self._has_data or phase == OWN_DECODED) and draws_random(function, owner):
            stage = Stage.AUGMENT
        self._has_data = self._has_data or data_stage([value]) is Stage.AUGMENT
        site.stage = stage if isinstance(stage, Stage) else None
        return value

    @staticmethod
    def _opens(site: Site, handed: Sequence[Any], phase: int, value: Any) -> bool:
        """Whether a call takes a file's head apart, or a row out of a table: it reads, or is handed a path, or is the first of all,
        and gives back an object of its library."""
        if value is None or data_stage((*handed, value)) is not None:
            return False
        reads = bool(site.crossed & BITS[Stage.STORAGE])
        named = any(isinstance(argument, (str, os.PathLike)) for argument in handed)
        return (reads or named or phase == OWN_BEFORE) and type(value).__module__.partition(".")[0] == (site.library or None)

    def cut(self, site: Site, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        assert site.stage is not None  # others are not chosen
        # The parts of an object such as a list of transforms are better told apart.
        one_piece = not isinstance(getattr(type(function), "__call__", None), FunctionType)  # noqa: B004 - written in Python
        data = _closed_over(site, function)
        if site.closed or data:
            force(args, kwargs, data)
        if site.closed:
            function, args = self._closed, (function, *args)
        return self.timer.timed_call(site.stage, site.label, function, args, kwargs, replayable=site.gives, leaf=one_piece)

    def _closed(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call it, and cross no hook inside."""
        self.timer.live = False
        try:
            return function(*args, **kwargs)
        finally:
            self.timer.live = True


def _closed_over(site: Site, function: Callable[..., Any]) -> Sequence[Any]:
    """Pictures and bytes that a comprehension takes by name from the code around it (``[crop(image) for _ in range(6)]``)."""
    values = enclosed(function) if site.expression.place[-1].endswith("Comp") else ()
    return [value for value in values if data_stage([value]) is not None and getattr(value, "ndim", 2) > 1]


def _owner(function: Callable[..., Any]) -> Any:
    """The object whose method it is."""
    with suppress(Exception):  # an object of somebody's that answers for another
        return getattr(function, "__self__", None)
    return None


def _library_of(function: Callable[..., Any], args: Sequence[Any]) -> str:
    """The package that does the work; empty where that is the user's own, or Python."""
    stands_for_syntax = any(function is known for known in recompile.FOR_SYNTAX)
    for value in args[:1] if stands_for_syntax else (function, _owner(function)):
        module = value.__module__ if isinstance(value, (FunctionType, BuiltinFunctionType, MethodType, type)) else None
        module = module or type(value).__module__
        root = module.partition(".")[0]
        if root not in ("builtins", "_operator", "pipefix") and not is_users(module):
            return root
    return ""
