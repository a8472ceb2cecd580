"""Records the history of a run, and checks it against a serial order."""
