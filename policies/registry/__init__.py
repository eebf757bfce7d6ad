"""The one list of policies, their parameters, and what a plan says of one job."""
