"""Traces of other simulators and archives."""
