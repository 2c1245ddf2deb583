"""Commands that also run on nodes, from the deployed copy: standard library only."""
