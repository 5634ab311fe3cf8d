"""`python -m icefield` is the same as `icefield`."""

from icefield.cli import main

main()
