"""Jobs and runs in the store: remembered, written in bulk, read as history."""
