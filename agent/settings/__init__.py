"""Every key of ``agent.toml``."""
