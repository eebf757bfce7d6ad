"""soda-agent: what runs on a node, sampled, spooled and reported."""
