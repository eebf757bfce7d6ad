"""The arithmetic of sharing a GPU: what jobs do to each other, and which of them should meet. Values in, values out."""
