"""What is recorded of a job while it runs, one JSON object a line: utilisation, and slow steps."""
