"""What sodad does for jobs in pools: restores the place of aborted jobs, keeps each pool's own order, and keeps its log."""
