"""Bands: classes of Slurm's own priority. Policies order the jobs inside one; no job delays one of a better band."""
