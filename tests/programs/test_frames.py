"""A traceback of the program's shows no frame of ours."""

from __future__ import annotations

import sys

from pipefix.loader.metering.stage_clock import without_our_frames


def test_frames_of_ours_are_taken_out_wherever_they_are() -> None:
    space = {"__file__": without_our_frames.__code__.co_filename}
    exec(compile("def ours(call): call()", space["__file__"], "exec"), space)

    def theirs() -> None:
        try:
            space["ours"](fails)  # type: ignore[operator]
        except KeyError as error:
            raise ValueError from error

    def fails() -> None:
        raise KeyError

    try:
        space["ours"](theirs)  # type: ignore[operator]
    except ValueError as error:
        without_our_frames(error)
        for one, names in (
            (error, ["test_frames_of_ours_are_taken_out_wherever_they_are", "theirs"]),
            (error.__cause__, ["theirs", "fails"]),
        ):
            assert one is not None
            trace, found = one.__traceback__, []
            while trace is not None:
                found.append(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            assert found == names
    assert sys.exc_info() == (None, None, None)
