"""What is held fixed, and what is stored? Conditions, cards, records and ledgers."""
