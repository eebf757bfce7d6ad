"""Everything that speaks Slurm: flags in (SPANK, lua), one codec for hints, reading the queue, carrying out plans."""
