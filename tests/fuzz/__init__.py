"""Fuzzing of everything that reads what strangers wrote; run as ``python -m tests.fuzz``.

A target is one reader with its seeds and its mutator (:mod:`tests.fuzz.target`). Input number n of
a target is a pure function of the root seed, the target's name, n and the corpus; an input that
breaks something is saved, and ``--replay FILE`` runs it again.
"""
