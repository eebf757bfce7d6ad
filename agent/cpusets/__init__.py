"""Which CPU cores a running job may use inside its allocation: cgroup v1, v2, plain affinity."""
