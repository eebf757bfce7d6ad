"""How a policy's decisions reach the event loop."""
