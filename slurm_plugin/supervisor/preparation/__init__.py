"""From a job's nodes to the launch of one attempt: files, container, variables, allocation, and the words to run."""
