"""What users call, and the command line with them: one verb a file. `pipefix` itself names them: ``pipefix.probe``."""
