"""The processes of `make demo-routing`: two shops, two routers, and three services that share the regions."""
