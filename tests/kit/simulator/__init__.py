"""The product's own classes over a simulated Kafka: one thread, one generator, a virtual clock."""
