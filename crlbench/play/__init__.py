"""How are episodes played? A policy speaks for its seats, all episodes in lockstep."""
