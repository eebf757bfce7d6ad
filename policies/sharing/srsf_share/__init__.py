"""Our own: shortest remaining service first, in pairs."""
