"""`keep_warm`: commands hand their work to an engine, a process in the background that keeps Spark between them."""
