"""What prolog and epilog tell the agent: the socket, the events, and the variables that slurmd gave."""
