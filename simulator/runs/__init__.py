"""One simulation or many: the scenario, the policy, and what is told to it."""
