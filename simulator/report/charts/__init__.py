"""Curves and Gantt charts, as numbers, HTML and PNG."""
