"""Tables of several clients as tensors."""
