"""What trains: the drawn world, its tokenizer and the small base model. Run as ``python -m training.<module>``."""
