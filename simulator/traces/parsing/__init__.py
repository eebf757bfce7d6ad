"""Text files, CSV tables and columns of numbers, and what is wrong with them."""
