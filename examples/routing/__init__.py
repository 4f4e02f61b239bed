"""The parts of `make demo-spark`: orders, a Spark job that routes them by their content, and a chart."""
