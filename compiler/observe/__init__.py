"""What is read from inside PyTorch: the only package that knows names which PyTorch does not promise to keep."""
