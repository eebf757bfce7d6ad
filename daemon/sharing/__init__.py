"""Jobs that share GPUs, as sodad sees them: who does, and the snapshot for policies that decide it."""
