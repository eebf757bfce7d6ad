"""From a snapshot to a plan: the actions that a plan is made of, and the stages that add them, in order."""
