"""What the agent sends to sodad: records of runs, core messages, recent faults, and the upload."""
