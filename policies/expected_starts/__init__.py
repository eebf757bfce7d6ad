"""When waiting jobs are expected to start, and how often such forecasts were right."""
