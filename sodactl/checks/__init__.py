"""What ``sodactl doctor`` looks at: small checks, each of which says what it found and what to do."""
