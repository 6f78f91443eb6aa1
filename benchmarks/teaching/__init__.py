"""The study "Does RL teach or elicit?": docs/studies/teach-or-elicit.md."""
