"""Sampling: the decode loop, its rows and its caches, with keyed draws."""
