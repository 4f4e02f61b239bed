"""Running the servers: a local stack of plain processes, and the Docker Compose files."""
