"""Where do runs execute? Worker processes, memory, devices, and the order of work."""
