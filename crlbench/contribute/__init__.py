"""May this contribution be believed? Results as they are packed, checked and compared to a base."""
