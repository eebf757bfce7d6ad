"""slurm-soda: the top-level folders of the repository as one package; each entry here is a link to one of them."""

import os

# Linear algebra on one thread, unless the environment says otherwise. Matrices here are small: on a busy machine several
# threads took five times the processor time, mostly to wait for each other, sums depend on how many there are, and to start
# them is most of what importing NumPy costs.
for _library in ("OPENBLAS", "MKL", "OMP"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
