"""What an inference service's owner, its instances, its router and sodad tell each other: files and messages."""
