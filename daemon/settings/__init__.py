"""The configuration file: one TOML file, every key optional, a wrong one said in one line before anything starts."""
