"""Files that have arrived: finds them, reads them in splits, and hands over rows, malformed lines and bytes."""
