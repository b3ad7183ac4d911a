"""Half of a training program's start is the compiler that torch's optimizers import to keep their functions out of it. Programs
with this folder on their path get a module in its place that leaves functions as they are."""

import sys
import types

module = types.ModuleType("torch._dynamo")
vars(module).update(disable=lambda function=None, *args, **kwargs: function, graph_break=lambda: None)
sys.modules[module.__name__] = module
