"""The services: each is the same tables over its own months."""

from marts import daily_trips, hourly_revenue, trip_distance_stats
from raw import GREEN, YELLOW, Fields, landed_trips
from staging import staged_trips


def service(colour: str, fields: Fields, *, mart: str) -> None:
    """Declare all tables of a service, from its landed months to its marts."""
    landed_trips(colour, fields)
    staged_trips(colour, fields)
    daily_trips(colour, mart)
    hourly_revenue(colour, mart)
    trip_distance_stats(colour, mart)


service("yellow", YELLOW, mart="fct_")
service("green", GREEN, mart="fct_green_")
