"""One decision over all pools: who is next, who borrows, who gives back."""
