"""Orders that a Spark job routes by their content: what `make demo-spark` plays."""
