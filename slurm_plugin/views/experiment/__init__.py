"""An experiment and its trials as text, JSON, CSV and one HTML page. Pure functions of the records of an experiment."""
