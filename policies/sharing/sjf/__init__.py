"""SJF-FFS and SJF-BSBF (Luo et al. 2024)."""
