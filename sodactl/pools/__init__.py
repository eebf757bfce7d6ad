"""``sodactl pools``: divide a partition between CPU jobs, small and large GPU jobs, and take that back."""
