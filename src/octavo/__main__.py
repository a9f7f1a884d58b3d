"""`python -m octavo` is `octavo`."""

from octavo.cli.main import main

main()
