"""Checks of the product's own source that no public linter has: its vocabulary, and counts of what is to stay rare."""
