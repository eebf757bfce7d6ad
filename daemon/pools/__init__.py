"""What sodad does for jobs in arrays: puts borrowers back in line, keeps each array's own order, and keeps its log."""
