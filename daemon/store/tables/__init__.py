"""The tables of the store."""
