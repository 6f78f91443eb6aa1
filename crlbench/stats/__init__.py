"""Arrays in, numbers out: measures, intervals, tests and tiers. No file, no ledger, no HTML."""
