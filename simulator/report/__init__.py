"""Outcomes for people and programs: tables, JSON, CSV files and pictures."""
