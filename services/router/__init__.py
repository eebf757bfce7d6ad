"""The router of one inference service: HAProxy before its instances, run by the service's owner."""
