"""How is crlbench used from Python? Runs, tables, comparisons and curves for notebooks."""
