"""What shells and `man` know of the command line: completion scripts and man pages, made from one command tree."""
