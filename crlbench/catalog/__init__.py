"""What is there? Tracks, tasks and models are found by name and version, with their files."""
