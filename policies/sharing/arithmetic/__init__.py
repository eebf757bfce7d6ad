"""When jobs that share end, what that costs, and what they need: Theorem 1, Algorithm 2, time and memory models."""
