"""The version of the package that is installed."""


def octavo_version() -> str:
    """Of the installed package; "0+unknown" for a checkout that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # costs more than `import octavo`

    try:
        return version("octavo")
    except PackageNotFoundError:
        return "0+unknown"
