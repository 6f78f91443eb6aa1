"""Models: how an entry comes to be, and whether it is true."""
