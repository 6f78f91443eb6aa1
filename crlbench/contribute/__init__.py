"""May a contribution be accepted? Rules for models, results and pull requests."""
