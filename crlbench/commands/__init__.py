"""What the commands of the command line do; each file is imported when it is used."""
