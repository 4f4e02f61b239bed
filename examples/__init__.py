"""Programs that show what konverse does; the tests run every one of them."""
