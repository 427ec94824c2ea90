"""From a checkpoint to a model on the Hub: staging, checking and sending a folder, and its model card."""
