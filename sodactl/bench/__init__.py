"""``sodactl bench``: how fast this machine decides, on made-up clusters."""
