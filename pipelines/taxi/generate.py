"""Seeded months of taxi trips in the TLC's own schema: the same arguments give the same trips, counted in a manifest.

    python generate.py                                   # January to March 2023, yellow and green, beside this script
    python generate.py --append                          # one more month of each
    python generate.py --replace 2023-02                 # that month once more, corrected
    python generate.py --start 2018-11 --months 4 --format csv --rows 1000000

Files have the names and types that the TLC's files of that month have: columns appear, change their type or are renamed
in the middle of a year. A trip is dirty in one way at most, so the manifest's counts are the counts that a correct
pipeline must find.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

Ints = NDArray[np.int64]
Draws = np.random.Generator
Trips = dict[str, Ints]
Missing = dict[str, NDArray[np.bool_]]

SERVICES = ("yellow", "green")
FORMATS = ("parquet", "csv")
NAMES = ("tlc", "snake")
#: What is written at once: a month of any size takes the memory of so many trips.
CHUNK = 100_000
DAY = 86_400
LATE_SHARE = 0.01  # trips that a corrected month has and the first one missed
DEFAULT_ROWS = {"yellow": 10_000, "green": 2_000}
DEFAULTS: dict[str, Any] = {
    "start": "2023-01",
    "months": 3,
    "seed": 7,
    "dirty": 0.01,
    "format": "parquet",
    "names": "tlc",
}

#: How a trip can be dirty. A duplicate repeats the trip before it; a refund is the trip before it, negated.
KINDS = (
    "outside_month",
    "dropoff_not_after_pickup",
    "impossible_distance",
    "refund",
    "unknown_zone",
    "duplicate",
    "malformed",
)
#: The kinds that fail a check of staging.
REJECTED = KINDS[:5]

HOUR_WEIGHTS = np.array([30, 22, 15, 10, 7, 7, 16, 32, 42, 42, 43, 46, 50, 51, 56, 58, 57, 64, 70, 66, 60, 58, 52, 42])
WEEKDAY_WEIGHTS = np.array([0.88, 0.96, 1.02, 1.05, 1.08, 1.06, 0.95])
ZONES, UNKNOWN_ZONE, OUTSIDE = 265, 264, 265
NEWARK, JFK, LAGUARDIA = 1, 132, 138
#: Borough, name and service zone where they are not made up.
SPECIAL = {
    NEWARK: ("EWR", "Newark Airport", "EWR"),
    JFK: ("Queens", "JFK Airport", "Airports"),
    LAGUARDIA: ("Queens", "LaGuardia Airport", "Airports"),
    UNKNOWN_ZONE: ("Unknown", "N/A", "N/A"),
    OUTSIDE: ("N/A", "Outside of NYC", "N/A"),
}
BOROUGHS = ("Manhattan", "Queens", "Brooklyn", "Bronx", "Staten Island")
#: Zones of the boroughs above, as the real lookup has them.
BOROUGH_SIZES = (69, 69, 61, 43, 20)
MONEY = (
    "fare_amount",
    "extra",
    "mta_tax",
    "tip_amount",
    "tolls_amount",
    "improvement_surcharge",
    "total_amount",
    "congestion_surcharge",
    "airport_fee",
    "ehail_fee",
    "cbd_congestion_fee",
)
IDENTIFIERS = ("vendor_id", "pickup_location_id", "dropoff_location_id")
TIMES = ("pickup_datetime", "dropoff_datetime")
#: Whole numbers that can be missing.
COUNTS = {
    "yellow": ("passenger_count", "rate_code_id"),
    "green": ("passenger_count", "rate_code_id", "payment_type", "trip_type"),
}
SNAKE_TO_TLC = {
    "vendor_id": "VendorID",
    "rate_code_id": "RatecodeID",
    "pickup_location_id": "PULocationID",
    "dropoff_location_id": "DOLocationID",
}
#: The order of columns in each service's files.
LAYOUT = {
    "yellow": (
        "vendor_id", "pickup_datetime", "dropoff_datetime", "passenger_count", "trip_distance", "rate_code_id",
        "store_and_fwd_flag", "pickup_location_id", "dropoff_location_id", "payment_type", "fare_amount", "extra",
        "mta_tax", "tip_amount", "tolls_amount", "improvement_surcharge", "total_amount", "congestion_surcharge",
        "airport_fee", "cbd_congestion_fee",
    ),
    "green": (
        "vendor_id", "pickup_datetime", "dropoff_datetime", "store_and_fwd_flag", "rate_code_id",
        "pickup_location_id", "dropoff_location_id", "passenger_count", "trip_distance", "fare_amount", "extra",
        "mta_tax", "tip_amount", "tolls_amount", "ehail_fee", "improvement_surcharge", "total_amount", "payment_type",
        "trip_type", "congestion_surcharge", "cbd_congestion_fee",
    ),
}  # fmt: skip


class WrongArgumentsError(ValueError):
    """What was asked for cannot be generated; the message says what to ask for instead."""


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A calendar month."""

    year: int
    month: int

    @classmethod
    def parse(cls, text: str, option: str) -> Month:
        """A month such as 2023-01; both services have been recorded with zones since 2014."""
        try:
            moment = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
        except ValueError:
            raise WrongArgumentsError(f"{option} must be a month such as 2023-01, not {text!r}.") from None
        if not 2014 <= moment.year <= 2099:
            raise WrongArgumentsError(f"{option} must be between 2014-01 and 2099-12, not {text}.")
        return cls(moment.year, moment.month)

    def plus(self, months: int) -> Month:
        """The month so many months later."""
        number = self.year * 12 + self.month - 1 + months
        return Month(number // 12, number % 12 + 1)

    @property
    def begin(self) -> int:
        """Its first second, since 1970."""
        return int(datetime(self.year, self.month, 1, tzinfo=UTC).timestamp())

    @property
    def end(self) -> int:
        """The first second of the next month."""
        return self.plus(1).begin

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One month of one service: what makes its bytes. A revision is a correction of the one before it."""

    service: str
    month: str
    rows: int
    seed: int
    dirty: float
    format: str
    names: str
    revision: int = 0

    @property
    def name(self) -> str:
        return f"{self.service}_tripdata_{self.month}.{self.format}"

    @property
    def at(self) -> Month:
        return Month(int(self.month[:4]), int(self.month[5:]))

    @property
    def late(self) -> int:
        """Trips that the first version missed."""
        return max(1, round(self.rows * LATE_SHARE)) if self.revision else 0

    @property
    def dirt(self) -> dict[str, int]:
        """Trips of each kind of dirt; every correction halves them."""
        count = round(self.rows * self.dirty / 2**self.revision)
        return {kind: (count + len(KINDS) - 1 - place) // len(KINDS) for place, kind in enumerate(KINDS)}

    def draws(self, *part: int) -> Draws:
        """A stream of random numbers for one part of this file, whatever the other parts draw."""
        return np.random.default_rng([self.seed, SERVICES.index(self.service), self.at.year, self.at.month, *part])


def types(service: str, month: Month) -> dict[str, pa.DataType]:
    """The columns of a month's file with their types, as the TLC has published that month in Parquet.

    Identifiers and counts were int64. Counts, which can be missing, became double in 2018-07. In 2023-02 identifiers
    became int32, counts int64 and text large_string, and airport_fee was renamed. What did not exist yet has type null.
    """
    modern = month >= Month(2023, 2)
    identifier = pa.int32() if modern else pa.int64()
    count = pa.int64() if modern or month < Month(2018, 7) else pa.float64()
    found: dict[str, pa.DataType] = {}
    for column in LAYOUT[service]:
        if column in IDENTIFIERS:
            found[column] = identifier
        elif column in TIMES:
            found[column] = pa.timestamp("us")
        elif column == "store_and_fwd_flag":
            found[column] = pa.large_string() if modern else pa.string()
        elif column in COUNTS[service]:
            found[column] = count
        else:
            found[column] = pa.int64() if column == "payment_type" else pa.float64()
    found |= {column: pa.null() for column in found if _is_unknown_yet(column, service, month)}
    if month < Month(2025, 1):
        del found["cbd_congestion_fee"]
    return found


def _is_unknown_yet(column: str, service: str, month: Month) -> bool:
    """Whether the files of that month have the column with the null type."""
    if column == "congestion_surcharge":
        return month < Month(2019, 1)
    if column == "airport_fee":
        return month < Month(2020, 8) or month == Month(2020, 10)
    if column == "ehail_fee":
        return Month(2019, 9) <= month < Month(2023, 2) or month < Month(2019, 1)
    return False


def file_names(file: File) -> dict[str, str]:
    """What the file calls each of its columns; a CSV file leaves out those that did not exist yet."""
    columns = [
        column
        for column, kind in types(file.service, file.at).items()
        if file.format == "parquet" or not pa.types.is_null(kind) or column == "ehail_fee"
    ]
    if file.names == "snake":
        return {column: column for column in columns}
    prefix = {"yellow": "tpep", "green": "lpep"}[file.service]
    fee = "Airport_fee" if file.at >= Month(2023, 2) else "airport_fee"
    tlc = SNAKE_TO_TLC | {time: f"{prefix}_{time}" for time in TIMES} | {"airport_fee": fee}
    return {column: tlc.get(column, column) for column in columns}


class City:
    """265 zones, the same for every seed: where trips of a service begin and end."""

    def __init__(self) -> None:
        rng = np.random.default_rng(265)
        boroughs = np.repeat(np.arange(len(BOROUGHS)), BOROUGH_SIZES)
        rng.shuffle(boroughs)
        self.borough = np.full(ZONES + 1, -1)
        self.borough[2:UNKNOWN_ZONE] = boroughs  # 1 is Newark, 264 and 265 are no places
        queens = np.flatnonzero(self.borough == 1)
        for airport, other in zip((JFK, LAGUARDIA), queens[:2], strict=True):  # the airports are in Queens
            self.borough[[airport, other]] = self.borough[[other, airport]]
        self.fame = 1.0 / (1.0 + rng.permutation(ZONES + 1))
        self.fame[0] = 0.0

    def some_zones(self, rng: Draws, service: str, count: int) -> Ints:
        """Zones by how often they occur: yellow taxis are in Manhattan and at airports, green ones elsewhere."""
        weights = self.fame * np.where(self.borough == 0, *((8.0, 1.0) if service == "yellow" else (1.0, 3.0)))
        weights[[NEWARK, JFK, LAGUARDIA]] *= 5.0 if service == "yellow" else 0.5
        weights[[UNKNOWN_ZONE, OUTSIDE]] = weights.sum() * 0.004
        chances = np.cumsum(weights / weights.sum())
        return np.minimum(np.searchsorted(chances, rng.random(count)), ZONES).astype(np.int64)

    def lookup(self) -> Iterator[tuple[int, str, str, str]]:
        """The rows of the lookup: id, borough, zone and service zone; some zones share a name, as the real ones do."""
        trees = "Ash Birch Cedar Dogwood Elm Fir Hawthorn Ironwood Juniper Linden Maple Oak"
        places = "Hill Park Point Heights Village Square Beach/Pier Gardens Yard Saint's"
        names = [f"{tree} {place}" for place in places.split() for tree in trees.split()]
        for zone in range(1, ZONES + 1):
            if zone in SPECIAL:
                yield zone, *SPECIAL[zone]
                continue
            part = ("", " North", " South")[zone // len(names)]
            borough = BOROUGHS[self.borough[zone]]
            name = names[zone % len(names)] + (part if zone % 17 else "")
            yield zone, borough, name, "Yellow Zone" if borough == "Manhattan" else "Boro Zone"


def _bounds(month: Month, parts: int) -> Ints:
    """Whole seconds that cut the month into parts of about as many trips."""
    cumulated = _busy(month)
    hours = np.interp(np.arange(parts + 1) / parts, cumulated, np.arange(len(cumulated)))
    bounds = month.begin + (hours * 3600).astype(np.int64)
    bounds[-1] = month.end
    return bounds


def _busy(month: Month) -> NDArray[np.float64]:
    """The share of the month's trips that began before each hour of it."""
    hours = (month.end - month.begin) // 3600
    day = np.arange(hours) // 24
    first = datetime(month.year, month.month, 1, tzinfo=UTC).weekday()
    weights = HOUR_WEIGHTS[np.arange(hours) % 24] * WEEKDAY_WEIGHTS[(first + day) % 7]
    return np.concatenate([[0.0], np.cumsum(weights) / weights.sum()])


def _pickups(rng: Draws, month: Month, begin: int, end: int, count: int) -> Ints:
    """Sorted seconds in a part of the month, busier by day than by night."""
    cumulated = _busy(month)
    hours = np.arange(len(cumulated))
    low, high = np.interp([(begin - month.begin) / 3600, (end - month.begin) / 3600], hours, cumulated)
    drawn = np.interp(rng.uniform(low, high, count), cumulated, hours)
    return np.sort(np.clip(month.begin + (drawn * 3600).astype(np.int64), begin, end - 1))


def _clean_trips(rng: Draws, city: City, file: File, begin: int, end: int, count: int) -> Trips:
    """Trips of a part of the month, no two alike; money is in cents, distances are in hundredths of a mile."""
    month, yellow = file.at, file.service == "yellow"
    pickup = _pickups(rng, month, begin, end, count)
    start, stop = city.some_zones(rng, file.service, count), city.some_zones(rng, file.service, count)
    airport = np.isin(start, (JFK, LAGUARDIA)) | np.isin(stop, (NEWARK, JFK, LAGUARDIA))
    miles = np.clip(rng.lognormal(0.55, 0.75, count) + 8.0 * airport, 0.0, 60.0)
    distance = _apart(pickup, start, stop, (miles * 100).astype(np.int64) * (rng.random(count) > 0.02))
    speed = np.clip(rng.normal(12.0, 3.5, count) + 8.0 * airport, 4.0, 45.0)
    seconds = np.maximum((distance / 100 / speed * 3600).astype(np.int64) + rng.integers(45, 240, count), 1)
    trips: Trips = {
        "vendor_id": 1 + (rng.random(count) < (0.72 if yellow else 0.87)).astype(np.int64),
        "pickup_datetime": pickup,
        "dropoff_datetime": pickup + seconds,
        "passenger_count": rng.choice(7, count, p=[0.02, 0.73, 0.14, 0.04, 0.02, 0.03, 0.02]).astype(np.int64),
        "trip_distance": distance,
        "rate_code_id": np.where(np.isin(stop, (JFK,)), 2, np.where(rng.random(count) < 0.01, 5, 1)),
        "store_and_fwd_flag": (rng.random(count) < 0.006).astype(np.int64),
        "pickup_location_id": start,
        "dropoff_location_id": stop,
        "payment_type": 1 + rng.choice(4, count, p=[0.76, 0.22, 0.01, 0.01]).astype(np.int64),
        "trip_type": 1 + (rng.random(count) < 0.03).astype(np.int64),
    }
    return trips | _amounts(rng, file, trips)


def _apart(pickup: Ints, start: Ints, stop: Ints, distance: Ints) -> Ints:
    """The distances, so that no two trips agree in when, from where, to where and how far."""
    distance = distance.copy()
    while True:
        order = np.lexsort((distance, stop, start, pickup))
        keys = np.stack([part[order] for part in (pickup, start, stop, distance)])
        repeated = order[1:][(keys[:, 1:] == keys[:, :-1]).all(axis=0)]
        if not len(repeated):
            return distance
        distance[repeated] += 1


def _amounts(rng: Draws, file: File, trips: Trips) -> Trips:
    """What trips cost, in cents; the total is the sum of all parts that existed in that month."""
    count, month = len(trips["pickup_datetime"]), file.at
    known = types(file.service, month)
    minutes = (trips["dropoff_datetime"] - trips["pickup_datetime"]) // 60
    fare = 300 + 70 * (trips["trip_distance"] // 20) + 35 * minutes
    hour = trips["pickup_datetime"] % DAY // 3600
    airport = np.isin(trips["pickup_location_id"], (JFK, LAGUARDIA)).astype(np.int64)
    carded, modern = trips["payment_type"] == 1, month >= Month(2023, 1)
    amounts: Trips = {
        "fare_amount": fare,
        "extra": np.where((hour >= 20) | (hour < 6), 100, np.where((hour >= 16) & (hour < 20), 250, 0)),
        "mta_tax": np.full(count, 50),
        "tip_amount": np.where(carded, (fare * np.clip(rng.normal(0.2, 0.09, count), 0.0, 0.6)).astype(np.int64), 0),
        "tolls_amount": np.where(rng.random(count) < 0.07, 655, 0),
        "improvement_surcharge": np.full(count, 100 if modern else 30),
        "congestion_surcharge": np.where(rng.random(count) < 0.9, 250, 0),
        "airport_fee": (175 if modern else 125) * airport,
        "cbd_congestion_fee": np.where(rng.random(count) < 0.6, 75, 0),
    }
    charged = [column for column in amounts if column in known and not pa.types.is_null(known[column])]
    return amounts | {"total_amount": sum((amounts[column] for column in charged), np.zeros(count, dtype=np.int64))}


def _missing(rng: Draws, file: File, count: int) -> Missing:
    """What is empty: since July 2019 some trips come without all that the driver's terminal adds, together."""
    absent = rng.random(count) < (0.04 if file.at >= Month(2019, 7) else 0.0)
    terminal = ["passenger_count", "rate_code_id", "store_and_fwd_flag", "congestion_surcharge"]
    terminal += ["airport_fee"] if file.service == "yellow" else ["payment_type", "trip_type"]
    return dict.fromkeys(terminal, absent) | {"ehail_fee": np.ones(count, dtype=np.bool_)}


def _dirty_places(rng: Draws, count: int, dirt: Mapping[str, int]) -> dict[str, Ints]:
    """Where trips of each kind stand: at odd places only, so that the trip before each of them is clean."""
    kinds = np.repeat(np.arange(len(KINDS)), [dirt[kind] for kind in KINDS])
    places = 2 * rng.choice(count // 2, len(kinds), replace=False) + 1
    return {kind: np.sort(places[kinds == number]) for number, kind in enumerate(KINDS)}


def _spoil(trips: Trips, missing: Missing, places: Mapping[str, Ints], month: Month) -> Trips:
    """Make the trips at those places dirty, each in the one way of its kind."""
    for kind in ("duplicate", "refund"):
        for values in (*trips.values(), *missing.values()):
            values[places[kind]] = values[places[kind] - 1]
    for column in MONEY:
        if column in trips:
            trips[column][places["refund"]] *= -1
    _spoil_times(trips, places, month)
    far = places["impossible_distance"]
    trips["trip_distance"][far] = np.where(np.arange(len(far)) % 2, -1 - trips["trip_distance"][far], 26_700_600 + far)
    lost = places["unknown_zone"]
    for turn, (end, zone) in enumerate((("pickup", 0), ("dropoff", 266), ("pickup", 999))):
        trips[f"{end}_location_id"][lost[turn::3]] = zone
    return trips


def _spoil_times(trips: Trips, places: Mapping[str, Ints], month: Month) -> None:
    early = places["outside_month"]
    shifts = np.array([31 * DAY, -31 * DAY, Month(2008, 12).begin - month.begin])[np.arange(len(early)) % 3]
    for column in TIMES:
        trips[column][early] += shifts
    back = places["dropoff_not_after_pickup"]
    lasted = trips["dropoff_datetime"][back] - trips["pickup_datetime"][back]
    trips["dropoff_datetime"][back] -= lasted * (1 + np.arange(len(back)) % 2)


def _column(column: str, values: Ints, absent: NDArray[np.bool_] | None, kind: pa.DataType, odd: Ints) -> pa.Array:
    """One column as the file has it; `odd` is where an amount gets a third decimal, which no amount of money has."""
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    if column in TIMES:
        return pa.array(values * 1_000_000, mask=absent).cast(kind)
    if column == "store_and_fwd_flag":
        return pa.array(np.array(["N", "Y"], dtype=object)[values], mask=absent).cast(kind)
    if column in MONEY or column == "trip_distance":
        amounts = values / 100
        if column == "fare_amount":
            amounts[odd] = (values[odd] * 10 + 5) / 1000
        return pa.array(amounts, mask=absent)
    return pa.array(values, mask=absent).cast(kind)


def _table(file: File, trips: Trips, missing: Missing, odd: Ints) -> pa.Table:
    """The trips in the columns, types and names of the file."""
    kinds, names = types(file.service, file.at), file_names(file)
    count = len(trips["pickup_datetime"])
    nothing = np.zeros(count, dtype=np.int64)
    columns = {
        name: _column(column, trips.get(column, nothing), missing.get(column), kinds[column], odd)
        for column, name in names.items()
    }
    return pa.table(columns)


def _chunks(file: File, city: City) -> Iterator[pa.Table]:
    """The file's trips, in parts of the month that follow one another; those that came late are the last part."""
    parts = -(-file.rows // CHUNK)
    bounds = _bounds(file.at, parts)
    counts = [file.rows // parts + (part < file.rows % parts) for part in range(parts)]
    shares = _shared(file.dirt, counts)
    for part, (count, dirt) in enumerate(zip(counts, shares, strict=True)):
        yield _chunk(file, city, part, (int(bounds[part]), int(bounds[part + 1])), count, dirt)
    if file.late:
        clean = dict.fromkeys(KINDS, 0)
        for part, count in enumerate(_pieces(file.late)):
            yield _chunk(file, city, parts + part, (file.at.begin, file.at.end), count, clean)


def _pieces(count: int) -> list[int]:
    return [min(CHUNK, count - begin) for begin in range(0, count, CHUNK)]


def _chunk(file: File, city: City, part: int, bounds: tuple[int, int], count: int, dirt: Mapping[str, int]) -> pa.Table:
    """One part: the trips are the same in every revision, the dirt is not."""
    rng = file.draws(0, part)
    trips, missing = _clean_trips(rng, city, file, *bounds, count), _missing(rng, file, count)
    places = _dirty_places(file.draws(1 + file.revision, part), count, dirt)
    return _table(file, _spoil(trips, missing, places, file.at), missing, places["malformed"])


def _shared(dirt: Mapping[str, int], counts: Sequence[int]) -> list[dict[str, int]]:
    """Each kind dealt out over the parts by their size, exactly."""
    ends = np.cumsum(counts)
    shares = {kind: np.diff(number * ends // ends[-1], prepend=0) for kind, number in dirt.items()}
    return [{kind: int(share[part]) for kind, share in shares.items()} for part in range(len(counts))]


@contextmanager
def _complete(path: Path) -> Iterator[BinaryIO]:
    """A file that has its name only once it is whole; until then it is hidden from a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write(landing: Path, city: City, file: File) -> dict[str, Any]:
    """One month of one service, and what the manifest says of it."""
    with _complete(landing / file.name) as out:
        writer: Any = None
        for chunk in _chunks(file, city):
            written = chunk if file.format == "parquet" else _as_text(chunk)
            writer = writer or _writer(out, file.format, written.schema)
            writer.write_table(written)
        writer.close()
    rows = file.rows + file.late
    return {
        "file": file.name,
        "rows": rows,
        "dirty": file.dirt,
        "rejected": sum(file.dirt[kind] for kind in REJECTED),
        "staged": rows - sum(file.dirt.values()),
        "made_from": asdict(file),
    }


def _writer(out: BinaryIO, format: str, schema: pa.Schema) -> Any:
    if format == "parquet":
        return parquet.ParquetWriter(out, schema, compression="snappy")
    return csv.CSVWriter(out, schema, write_options=csv.WriteOptions(quoting_style="none", quoting_header="none"))


def _as_text(chunk: pa.Table) -> pa.Table:
    """The chunk as a CSV file shows it: whole seconds, and a decimal point in every number that is a double."""
    for place, entry in enumerate(chunk.schema):
        if pa.types.is_timestamp(entry.type):
            chunk = chunk.set_column(place, entry.name, chunk[place].cast(pa.timestamp("s")))
        elif pa.types.is_floating(entry.type):
            text = chunk[place].cast(pa.string())
            pointed = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, "0", "."))
            chunk = chunk.set_column(place, entry.name, pointed)
        elif pa.types.is_null(entry.type):
            chunk = chunk.set_column(place, entry.name, chunk[place].cast(pa.string()))
    return chunk


def _write_zones(landing: Path, city: City) -> None:
    """The lookup as the TLC publishes it: quoted texts, lines that end with CR LF."""
    header = '"LocationID","Borough","Zone","service_zone"'
    lines = [header, *(f'{zone},"{borough}","{name}","{kind}"' for zone, borough, name, kind in city.lookup())]
    text, path = "".join(f"{line}\r\n" for line in lines).encode(), landing / "taxi_zone_lookup.csv"
    if not path.is_file() or path.read_bytes() != text:  # nothing is new about a file that is left alone
        with _complete(path) as out:
            out.write(text)


@dataclass(slots=True, kw_only=True)
class Manifest:
    """The truth about a landing folder: for each service and month, how many trips its file has of which kind."""

    services: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def files(self) -> list[File]:
        """Every file as it was asked for."""
        return [File(**entry["made_from"]) for months in self.services.values() for entry in months.values()]

    def file(self, service: str, month: str) -> File | None:
        """A month's file, if there is one."""
        return next((file for file in self.files() if (file.service, file.month) == (service, month)), None)

    def last(self, service: str | None = None) -> File:
        """The newest month, of one service or of all."""
        files = [file for file in self.files() if service in (None, file.service)]
        return max(files, key=lambda file: file.month)


def _read_manifest(landing: Path) -> Manifest | None:
    path = landing / "manifest.json"
    if not path.exists():
        return None
    try:
        manifest = Manifest(**json.loads(path.read_bytes()))
        manifest.files()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WrongArgumentsError(
            f"{path} is not a manifest of this generator ({error}): choose another --landing."
        ) from None
    return manifest


def _check(asked: Mapping[str, Any]) -> None:
    if not 1 <= asked["months"] <= 240:
        raise WrongArgumentsError(f"--months must be between 1 and 240, not {asked['months']}.")
    if asked["rows"] is not None and asked["rows"] < 2:
        raise WrongArgumentsError(f"--rows must be at least 2, not {asked['rows']}.")
    if not 0 <= asked["dirty"] <= 0.4:
        raise WrongArgumentsError(
            f"--dirty is the share of dirty trips and must be between 0 and 0.4, not {asked['dirty']}."
        )
    if asked["seed"] < 0:
        raise WrongArgumentsError(f"--seed must not be negative, not {asked['seed']}.")
    for option, values in (("format", FORMATS), ("names", NAMES)):
        if asked[option] not in values:
            raise WrongArgumentsError(f"--{option} must be {' or '.join(values)}, not {asked[option]!r}.")


def _files(services: Sequence[str], asked: Mapping[str, Any]) -> list[File]:
    """The files of a call without --append and --replace."""
    _check(asked)
    first = Month.parse(asked["start"], "--start")
    made = {key: asked[key] for key in ("seed", "dirty", "format", "names")}
    return [
        File(service=service, month=str(first.plus(number)), rows=asked["rows"] or DEFAULT_ROWS[service], **made)
        for service in services
        for number in range(asked["months"])
    ]


def _fresh(landing: Path, known: Manifest | None, files: Sequence[File]) -> Manifest:
    """A new landing folder; one that holds other months is never written over or mixed with."""
    if known is not None and known.files() != list(files):
        raise WrongArgumentsError(
            f"{landing} already holds months up to {known.last().month} made with other arguments: continue them with "
            "--append, correct one with --replace, choose another --landing, or remove the folder."
        )
    names = {file.name for file in files}
    if strangers := sorted(path for path in landing.glob("*_tripdata_*") if path.name not in names):
        raise WrongArgumentsError(
            f"{landing} holds files that this call would not write, such as {strangers[0]}: choose another --landing, "
            "or remove them."
        )
    return Manifest(services={file.service: {} for file in files})


def _appended(landing: Path, known: Manifest | None, services: Sequence[str], asked: Mapping[str, Any]) -> list[File]:
    """The next months of the folder's services, made as the last month of each was."""
    lasts = [] if known is None else [known.last(service) for service in services if service in known.services]
    if not lasts:
        raise WrongArgumentsError(
            f"{landing} has no generated months of {' or '.join(services)} to append to: generate without --append "
            "first."
        )
    months = 1 if asked["months"] is None else asked["months"]
    wanted = {key: value for key, value in asked.items() if value is not None and key not in ("start", "months")}
    found: list[File] = []
    for last in lasts:
        first = last.at.plus(1) if asked["start"] is None else Month.parse(asked["start"], "--start")
        if first <= last.at:
            raise WrongArgumentsError(
                f"--start {first} must be after {last.month}, the last month of {last.service} in {landing}."
            )
        file = replace(last, revision=0, **wanted)
        _check({**asdict(file), "months": months})
        found += [replace(file, month=str(first.plus(number))) for number in range(months)]
    return found


def _corrected(landing: Path, known: Manifest | None, month: str, services: Sequence[str]) -> list[File]:
    """The next revision of a month that is there."""
    Month.parse(month, "--replace")
    files = [] if known is None else [file for service in services if (file := known.file(service, month))]
    if not files:
        there = "" if known is None else f": it has months up to {known.last().month}"
        raise WrongArgumentsError(
            f"{landing} has no generated {' or '.join(services)} month {month} to replace{there}."
        )
    return [replace(file, revision=file.revision + 1) for file in files]


def generate(
    landing: Path | str,
    *,
    service: str = "both",
    start: str | None = None,
    months: int | None = None,
    rows: int | None = None,
    seed: int | None = None,
    dirty: float | None = None,
    format: str | None = None,
    names: str | None = None,
    append: bool = False,
    replace: str | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Write months and return the manifest; None means the default, or with append: as before."""
    landing = Path(landing)
    asked: dict[str, Any] = {"start": start, "months": months, "rows": rows, "seed": seed, "dirty": dirty}
    asked |= {"format": format, "names": names}
    services = SERVICES if service == "both" else (service,)
    known = _read_manifest(landing)
    if replace is not None:
        _only(append=append, **asked)
        files = _corrected(landing, known, replace, services)
    elif append:
        files = _appended(landing, known, services, asked)
    else:
        files = _files(
            services, DEFAULTS | {key: value for key, value in asked.items() if value is not None or key == "rows"}
        )
    manifest = known if (append or replace) and known is not None else _fresh(landing, known, files)
    city = City()
    _write_zones(landing, city)
    for file in files:
        since = time.monotonic()
        manifest.services[file.service][file.month] = entry = _write(landing, city, file)
        if progress:
            print(f"{file.name}: {entry['rows']:,} trips ({time.monotonic() - since:.1f} s)", file=sys.stderr)
    data = asdict(manifest)
    with _complete(landing / "manifest.json") as out:
        out.write(json.dumps(data, indent=1).encode() + b"\n")
    return data


def _only(**others: Any) -> None:
    """A corrected month is made as the month was."""
    if given := [name for name, value in others.items() if value]:
        raise WrongArgumentsError(f"--replace takes no --{given[0]}: a corrected month is made as the month was.")


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"generate: {message} (see --help)\n")


def _parser() -> argparse.ArgumentParser:
    beside = Path(__file__).resolve().parent / "landing"
    parser = _Arguments(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--landing", type=Path, default=beside, help="the landing folder (default: landing beside this script)"
    )
    parser.add_argument("--service", choices=[*SERVICES, "both"], default="both", help="whose trips (default both)")
    parser.add_argument("--start", help="first month (default 2023-01; with --append the month after the last)")
    parser.add_argument("--months", type=int, help="number of months (default 3; with --append 1)")
    parser.add_argument("--rows", type=int, help="trips in each file (default: yellow 10000, green 2000)")
    parser.add_argument("--seed", type=int, help="same seed and arguments, same trips (default 7)")
    parser.add_argument("--dirty", type=float, help="share of dirty trips (default 0.01)")
    parser.add_argument("--format", choices=FORMATS, help="of the files (default parquet)")
    parser.add_argument(
        "--names",
        choices=NAMES,
        help="the columns' names: the TLC's, or those of republished samples, such as pickup_datetime",
    )
    parser.add_argument("--append", action="store_true", help="continue after the last month of the manifest")
    parser.add_argument("--replace", metavar="MONTH", help="write a corrected version of a month that is there")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; wrong arguments and unwritable folders end with 2 and one paragraph."""
    asked = vars(_parser().parse_args(arguments))
    try:
        manifest = generate(**asked, progress=True)
    except WrongArgumentsError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        place = error.filename or asked["landing"]
        print(
            f"generate: cannot write {place}: {error.strerror}. Choose another --landing or free it.", file=sys.stderr
        )
        return 2
    entries = [entry for months in manifest["services"].values() for entry in months.values()]
    trips, last = sum(entry["rows"] for entry in entries), max(max(months) for months in manifest["services"].values())
    print(f"{asked['landing']} holds {trips:,} trips up to {last}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
