"""Reports of jobs for their owners: what they held, what they used of it, why they waited, and what would be better."""
