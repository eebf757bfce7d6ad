"""What is known of jobs that share a GPU, and how it grows by what is seen."""
