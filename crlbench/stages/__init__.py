"""What does one run leave for the next? A fitted reward model, an exported model."""
