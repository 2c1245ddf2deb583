"""Runs an unmodified Trial class (`model_def:MyTrial`) on every rank of a job: PyTorchTrial and TFKerasTrial."""
