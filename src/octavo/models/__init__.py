"""What a model is: its file, tokenizer and chat template, and its architecture as a `Program`."""
