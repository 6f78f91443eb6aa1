"""How is a task made? Generated or taken from a dataset, checked, frozen and versioned."""
