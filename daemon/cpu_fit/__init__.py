"""The controller's side of just enough cores: requests of waiting jobs, and searches over several nodes."""
