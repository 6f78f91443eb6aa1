"""What may every room use? Wording, processes, JSON schemas. Nothing here knows a run."""
