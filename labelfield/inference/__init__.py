"""How models are fitted."""
