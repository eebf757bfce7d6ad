"""What the agent tells the controller: records of runs, core messages, recent faults, and the upload."""
