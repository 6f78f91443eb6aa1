"""Numbers as tables, figures and HTML pages. Nothing is decided."""
