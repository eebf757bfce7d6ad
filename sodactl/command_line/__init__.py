"""How commands are named, found, loaded when they are run, and completed by a shell."""
