"""What only the image needs."""
