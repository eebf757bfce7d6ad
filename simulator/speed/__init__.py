"""How fast a job runs where it was placed: measured tables of models, placements and pairs."""
