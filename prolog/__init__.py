"""Prolog: opens the record of a run on a node."""
