"""How long jobs run: learned from those that ended, predicted for those that wait or run."""
