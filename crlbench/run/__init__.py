"""A run: its plan, its files, its processes and its ledger."""
