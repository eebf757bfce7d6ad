"""How a partition is divided into pools: shares, nodes, partitions, and which of them a job may use."""
