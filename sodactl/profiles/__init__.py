"""``sodactl profiles``: what is known about kinds of jobs."""
