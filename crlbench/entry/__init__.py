"""Entries of models: how one comes to be, and whether what it says is true."""
