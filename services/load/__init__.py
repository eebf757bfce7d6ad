"""Load for inference services: queries at planned times, whatever the answers do, and what became of them.

The plan is open loop: a query is sent when it is due, not when the one before is answered, and its latency counts from then,
so that a slow server cannot hide behind queries that were sent late ("coordinated omission").
"""
