"""Models of interference and of memory, fitted to measurements; the optional extra ``learn`` brings the libraries for it."""
