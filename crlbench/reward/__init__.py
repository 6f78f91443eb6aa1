"""What is right: extraction, verification, scores and split membership. No torch, no model."""
