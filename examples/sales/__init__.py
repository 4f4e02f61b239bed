"""A shop orders, an order service answers: the demonstration, and a model for services of your own."""
