"""Takes in what has arrived: finds it, reads it, and hands over rows, malformed lines and the bytes of any line."""
