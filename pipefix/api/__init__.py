"""The public functions, one verb a file; `pipefix` names them (``pipefix.probe``), and the command line calls them."""
