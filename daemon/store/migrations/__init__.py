"""Alembic migrations of the store; :mod:`slurm_soda.daemon.store.engine` runs them when a store is opened."""
