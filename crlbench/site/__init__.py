"""What does a reader of the leaderboard see? Static pages made of stored results alone.

``source`` reads the results, one module per kind of page turns them into
:class:`~crlbench.site.pages.Page` objects, ``build`` renders and writes them. Numbers come from
:mod:`crlbench.verdict`, charts and tables from :mod:`crlbench.pages`.
"""
