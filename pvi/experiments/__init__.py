"""Published experiments as short declarations over the public API."""
