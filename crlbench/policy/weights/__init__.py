"""The files of a model: found, checked, converted, loaded and written."""
