"""The ``--soda-…`` flags: their one definition and the one codec of their values."""
