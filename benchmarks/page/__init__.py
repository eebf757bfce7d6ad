"""The web page in a real browser: for its tests, its measurements, and the pictures in the documents."""
