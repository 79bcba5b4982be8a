"""Text and JSON to the model and back; normal forms."""
