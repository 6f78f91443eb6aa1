"""Is a stored number true? It is recomputed, scored again, and its first updates are repeated."""
