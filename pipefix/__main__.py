"""``python -m pipefix`` is the ``pipefix`` command."""

import os
import sys

if __name__ == "__main__":
    # As for the console script, what lies in the working directory under a library's name is not imported in its place. Targets
    # find their neighbours nevertheless.
    checkout = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    try:
        here = os.getcwd()
    except OSError:  # the folder was removed
        here = checkout
    if sys.path[0] == here != checkout and not getattr(sys.flags, "safe_path", False):
        del sys.path[0]

    from pipefix.cli.main import run

    run()
