"""What pairs that nobody measured would do to each other: tables, models that learned from them, what fits."""
