"""Between a cluster and a policy that shares GPUs, the same for sodad and the simulator: who holds which GPU, the snapshot
that is made of it, and whether the plan that comes back can be.
"""
