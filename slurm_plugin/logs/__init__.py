"""The logs of a job: which lines matter, and what they say about its failure."""
