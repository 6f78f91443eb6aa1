"""Is it true? Stored numbers are audited, scored again and replayed."""
