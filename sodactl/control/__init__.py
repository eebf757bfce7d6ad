"""Commands that change something: mode, policy, undo, release-all."""
