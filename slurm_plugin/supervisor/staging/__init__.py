"""Copy data to the nodes before the program starts."""
