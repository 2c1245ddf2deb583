"""The administrator: site file, compiled settings, hook archive, install and roll back, doctor."""
