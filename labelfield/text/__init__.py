"""Text: reading documents and vocabularies, and encoders that turn documents into sparse rows."""
