"""What is known about kinds of jobs: learned here, imported, predicted or set by hand."""
