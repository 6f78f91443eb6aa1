"""What every room may use: text, processes, schemas. It knows nothing of runs."""
