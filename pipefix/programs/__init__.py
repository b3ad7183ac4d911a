"""A user's training program, run as it is and looked at from within.

`launch` starts the program with a folder of ours first on ``PYTHONPATH``: a copy of ``startup/sitecustomize.py``, and what it is
to do. Python imports that in every process of the program. It waits until the program imports torch and then installs `observing`,
which notes loops over loaders as JSON lines, a file a process. When the program has ended `merge_notes` reads the lines.

The hook and `observing` run inside the user's program: they import the standard library and what the program has imported itself,
and of pipefix only what experiments, a plan and looks at stages take.
"""
