"""What sodad does for jobs in pools: puts borrowers back in line, keeps each pool's own order, and keeps its log."""
