"""What the hooks count for Prometheus: the metrics, and the files in which node_exporter finds them."""
