"""Code of tasks that nobody here wrote: run in a confined process, asked over a channel."""
