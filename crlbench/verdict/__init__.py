"""Who is better: runs become entries, boards, comparisons, ablations. Nothing is drawn."""
