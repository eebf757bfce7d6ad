"""Inference services on their owner's side: instances, the router before them, their load and their profiles."""
