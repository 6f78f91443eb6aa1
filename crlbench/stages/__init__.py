"""What one run leaves for the next: a reward model that was fitted, a model that was exported."""
