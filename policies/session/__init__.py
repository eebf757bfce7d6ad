"""The same policies, one event at a time.

``decide`` looks at a whole snapshot; a session keeps what it learnt from the last event and looks only at what changed,
which is what makes simulations of years fast. Both take a policy's order from one place, its
:class:`~slurm_soda.policies.session.ranking.Ranking`; tests hold their decisions equal, event by event.
"""
