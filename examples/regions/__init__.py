"""What `make demo-routing` plays: two shops, two routers, and three services that share the regions."""
