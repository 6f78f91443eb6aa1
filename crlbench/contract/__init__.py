"""What is held fixed and what is stored: conditions, cards, records and ledgers."""
