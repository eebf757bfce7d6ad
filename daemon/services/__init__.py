"""Inference services in sodad: what their routers report, which of their tasks may start, and which instances leave."""
