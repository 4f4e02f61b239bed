"""The processes of `make demo-routes`: a shop, depots in two databases, and the server of the instance."""
