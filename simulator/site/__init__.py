"""What a site's Slurm knows besides jobs and nodes: users' shares and limits, QOS, partition tiers, priorities."""
