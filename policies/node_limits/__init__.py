"""Which CPU jobs of one node are limited beside its GPU jobs, and how far: memory bandwidth and network (SODA, Section V-E).

Plain Python without numpy, as the agent on a node shall stay small. The agent measures and sets limits; what is decided
here is the same whoever asks.
"""
