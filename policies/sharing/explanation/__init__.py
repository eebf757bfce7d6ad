"""Why a job shares, waits or moves: the numbers, and the words for them."""
