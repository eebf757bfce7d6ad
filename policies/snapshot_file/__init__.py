"""A snapshot, what was decided on it and by which policy, as one file that decides the same wherever it is read."""
