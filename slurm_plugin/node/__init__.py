"""What root does on a node: prolog, epilog, health check, drain and resume, clean-up."""
