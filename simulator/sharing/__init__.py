"""Jobs that share GPUs: who holds which one, how fast they run beside each other, and what policies know of that."""
