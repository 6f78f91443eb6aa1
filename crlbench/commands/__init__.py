"""What can be typed? Each command is a file of its name; what several share lies beside them.

The file of a command has ``EXAMPLES``, shown below its flags; ``add_flags(parser)``; and
``run(options)``, which returns the exit code. It says ``NEEDS_TEMPORARY = False`` if it writes no
temporary files, and ``READS_MODELS = True`` if it hands names of files to the libraries of models.
``LATE`` names a positional argument that may also follow a flag, which argparse alone refuses.
It is imported to print ``--help``, so what is heavy is imported inside its functions.
"""
