"""Epilog: closes the record of a run on a node."""
