"""Open a shell, Jupyter, TensorBoard or an editor on a worker of a job."""
