"""SODA's multi-array scheduling (Sections V-C and VI): kinds of jobs, what each may hold, and what it may borrow."""
