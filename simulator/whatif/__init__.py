"""What another policy would have done to a site's own jobs, from its accounting.

Data flows one way: ``site`` is what a dump shows, ``ensemble`` makes workloads of it, ``candidates`` are the policies that
are tried, ``answer`` runs them and compares, ``losers`` finds who pays, ``advice`` puts it into words.
"""
