"""What a run records while its program runs: how much it uses of its nodes, and how far it is."""
