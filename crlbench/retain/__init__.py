"""The retain panel: a frozen set that shows what training made a model forget."""
