"""Models over HTTP: one function that tags, and the shapes of protocols that people already speak."""
