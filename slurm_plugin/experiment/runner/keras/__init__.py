"""Runs a TFKerasTrial. `start` may be imported without TensorFlow."""
