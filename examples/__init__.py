"""Programs that show what konverse does. The tests run each of them."""
