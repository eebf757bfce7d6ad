"""NVIDIA MPS: which GPUs are fit for it, who runs under it, and faults of its clients."""
