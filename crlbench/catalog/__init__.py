"""What there is: tracks, tasks, models and their files, by name and version."""
