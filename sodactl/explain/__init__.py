"""``sodactl explain``: why one job is where it is, and what two jobs would do to each other."""
