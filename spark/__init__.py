"""The same topics in bulk: Spark data source and frame functions."""
