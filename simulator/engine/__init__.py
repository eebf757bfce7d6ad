"""The event loop, and how a policy's decisions reach it."""
