"""Messages of topics: brokers, recordings, and how values become rows."""
