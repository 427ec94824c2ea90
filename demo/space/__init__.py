"""The app as a Hugging Face Space."""
