"""Stages of the decision that know of pools: what a policy decides in each, who is next in line, and each pool's order."""
