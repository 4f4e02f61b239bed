"""The `konverse` command."""
