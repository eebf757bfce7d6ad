"""What nodes tell the controller: record types, the spool they survive in, and the MUNGE seal on them.

Only the standard library is imported here, because prolog and epilog pay for every import with job latency.
"""
