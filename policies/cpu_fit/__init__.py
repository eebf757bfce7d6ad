"""Just enough CPU cores for a training job: where to start, how to search while it runs, when to search anew.

SODA, Sections IV, V-B and VI-H. Plain Python without numpy, as the agent on a node shall stay small.
"""
