"""What can be typed: each command in a file of its name, and beside them what several share.

The file of a command has ``EXAMPLES``, shown below its flags; ``add_flags(parser)``; and
``run(options)``, which returns the exit code. It says ``NEEDS_TEMPORARY = False`` if it writes no
temporary files, and ``READS_MODELS = True`` if it hands names of files to the libraries of models.
``LATE`` names an argument that may stand behind a flag, where argparse gives it up.
It is imported to print ``--help``, so what is heavy is imported inside its functions.
"""
