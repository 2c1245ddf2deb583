"""Growth: end a program on fewer nodes than it wants when more are free, and requeue its job."""
