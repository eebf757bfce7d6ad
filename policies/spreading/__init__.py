"""How much slower jobs run on more nodes than they need: what runs show of it, and what policies are given."""
