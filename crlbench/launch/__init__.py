"""Where runs run: processes, workers, memory, devices and the order of work."""
