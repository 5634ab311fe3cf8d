"""How long it takes from an event that is sent to a row that another process can read."""
