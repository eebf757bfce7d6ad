"""slurm-soda: the top-level folders of the repository as one package; each entry here is a link to one of them."""
