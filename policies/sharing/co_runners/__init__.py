"""Which jobs a job shares GPUs with, or would share them with: the facts behind a decision, for its explanation."""
