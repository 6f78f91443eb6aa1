"""What do arrays say? Measures, intervals, tests and tiers. No file, no ledger, no HTML."""
