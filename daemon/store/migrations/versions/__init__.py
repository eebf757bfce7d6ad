"""One module a revision, ``rNNNN_what.py``; a released revision is never edited."""
