"""The command line. `nodeside` runs on nodes with the standard library alone; the rest needs click."""
