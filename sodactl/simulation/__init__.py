"""Commands that simulate: simulate, compare, whatif."""
