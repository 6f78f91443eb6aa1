"""How a task comes to be: drawn, judged, frozen, versioned, or made from a published dataset."""
