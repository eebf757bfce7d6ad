"""What prolog and epilog send to the agent: the socket, the events, and the variables that slurmd gave."""
