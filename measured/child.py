"""`python -m measured.child MODULE PIPE`: runs a module's `rows()`, and writes each row to the pipe as a line of JSON."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import sys
import time
import traceback
import warnings
from typing import Any

from measured.planted.quiet import Others

TOO_SHORT_S = 0.1
"""A row that comes so soon after the one before it was measured with it: what other programs used was the same."""


def main() -> int:
    module, pipe = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(pipe, False)
    # A shell starts what runs in its background with SIGINT ignored; here it comes from `measured`, which was interrupted itself.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")

    def tell(**told: Any) -> None:
        os.write(pipe, f"{json.dumps(told)}\n".encode())

    try:
        rows = importlib.import_module(module).rows()
        share, others, begun = 0.0, Others(), time.monotonic()
        for row in rows:
            if time.monotonic() - begun > TOO_SHORT_S:
                share, others, begun = others.share(), Others(), time.monotonic()
            tell(row=dataclasses.asdict(row), others=share)
    except KeyboardInterrupt:
        return 130
    except BaseException:  # noqa: BLE001 - whatever it raises is told, and the next module has its turn
        tell(raised=traceback.format_exc())
        return 1
    tell(ended=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
