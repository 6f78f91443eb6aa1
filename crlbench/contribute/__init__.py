"""May this contribution be believed? Models, results and the pull requests that bring them."""
