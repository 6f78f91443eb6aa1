"""What is a run? Its plan, its execution, its files, and the ledger of attempts."""
