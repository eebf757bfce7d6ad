"""How right ``sodactl report`` is: the agent's own code over the emulated NVML, against what the emulator was told to do."""
