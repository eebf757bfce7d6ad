"""Network bandwidth of GPU jobs on several nodes and of CPU jobs beside them, by tc (SODA, Section V-E)."""
