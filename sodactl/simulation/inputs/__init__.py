"""From options of the command line to scenarios."""
