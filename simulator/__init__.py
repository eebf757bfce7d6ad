"""What a policy would do to a cluster: the daemon's own policies over a virtual cluster and clock.

Data flows one way: ``traces`` and ``generators`` make a :class:`~slurm_soda.simulator.workload.Workload`; ``engine`` runs
it on a :class:`~slurm_soda.simulator.cluster.SimulatedCluster` at the speeds of ``speed`` and returns an
:class:`~slurm_soda.simulator.outcome.SimulationOutcome`; ``report`` shows outcomes.
"""
