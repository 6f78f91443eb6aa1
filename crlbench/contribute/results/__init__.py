"""Results: packed, checked and compared with what a base commit holds."""
