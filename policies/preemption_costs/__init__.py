"""What it costs to preempt a job: learned from preemptions of jobs like it, with one number to begin with."""
