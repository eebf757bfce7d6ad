"""The HTTP side of sodad: agents report here, people and tools read views."""
