"""Who is better? Runs become entries, boards, comparisons, ablations; `pages` draws them."""
