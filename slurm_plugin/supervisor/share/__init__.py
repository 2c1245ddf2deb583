"""Sharing a job with a group: who may read its records and logs, and requests of others that are carried out."""
