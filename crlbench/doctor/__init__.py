"""Will it run here? What a person should know of a machine, a model or a board before a run."""
