"""Memory-bandwidth contention between CPU and GPU jobs of one node: measured, decided, limited, and taken back."""
