"""How often a job starts beside a guest that it did not ask for, after the guest's host has ended in some way."""
