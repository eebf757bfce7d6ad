"""A site's own accounting: the output of ``sacct --parsable2`` as jobs and as a cluster."""
