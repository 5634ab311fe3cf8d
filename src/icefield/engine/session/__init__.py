"""Java, its jars and the Spark session of a process."""
