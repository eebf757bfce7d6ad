"""Co-location by occupancy (Tabrizian 2020)."""
