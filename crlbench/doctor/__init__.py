"""Will it run here? Checks of the machine, the model and the tasks before a run."""
