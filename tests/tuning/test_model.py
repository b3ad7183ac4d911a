from __future__ import annotations

import math

import numpy as np
import pytest

from pipefix.tuning.model import Point, fit
from tests.tuning.grids import roof, usl

COUNTS = [*range(17), 20, 24, 28, 32, 48, 64]


def test_three_points_tell_where_a_straight_line_ends() -> None:
    curve = roof(8)
    cloud = fit([Point(n, curve(n), 0.02) for n in (1, 4, 16)], COUNTS, cores=8)
    for workers in (2, 6, 8, 12, 24):
        assert cloud.forecast(workers) == pytest.approx(curve(workers), rel=0.25)


def test_measured_counts_are_forecast_as_they_were_measured() -> None:
    curve = usl(0.05, 0.002)
    points = [Point(n, curve(n), 0.01) for n in (0, 2, 8, 20, 48)]
    cloud = fit(points, COUNTS, cores=32)
    for point in points:
        assert cloud.forecast(point.workers) == pytest.approx(point.rate, rel=0.03)


def test_doubt_grows_away_from_what_was_measured() -> None:
    cloud = fit([Point(2, 200.0, 0.02)], COUNTS, cores=16)
    spread = {workers: float(np.std(cloud.at(workers))) for workers in (2, 3, 32)}
    assert spread[2] < spread[3] < spread[32]


def test_the_cpu_time_of_a_sample_bounds_the_forecast() -> None:
    points = [Point(1, 100.0, 0.02)]
    free, bound = fit(points, COUNTS, cores=32), fit(points, COUNTS, cores=32, ceiling=400.0)
    assert float(np.exp(bound.draws.max(axis=1)).mean()) < float(np.exp(free.draws.max(axis=1)).mean())
    assert bound.forecast(32) < 600


def test_nothing_measured_is_no_error_and_the_scale_does_not_matter() -> None:
    assert np.isfinite(fit([], COUNTS, cores=4).draws).all()
    small = fit([Point(1, 1.0, 0.02), Point(4, 3.5, 0.02)], COUNTS, cores=8)
    large = fit([Point(1, 1e6, 0.02), Point(4, 3.5e6, 0.02)], COUNTS, cores=8)
    assert math.log(large.forecast(8) / small.forecast(8)) == pytest.approx(math.log(1e6), abs=0.02)
