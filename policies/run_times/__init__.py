"""How long jobs run: learned from those that ended, told for those that wait or run."""
