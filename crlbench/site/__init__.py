"""The public site of a leaderboard: static pages made of stored results, and nothing else.

``source`` reads the results, one module per kind of page turns them into :class:`~pages.Page`
objects, ``build`` renders and writes them. Numbers come from :mod:`crlbench.pages`; none is
computed here.
"""
