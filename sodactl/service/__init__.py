"""``sodactl service``: inference services, from their owner's file to what their routers see."""
