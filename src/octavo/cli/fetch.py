"""`octavo fetch`: put the default model where every other command looks for it."""

from octavo.cli.terminal import stdout_console


def fetch() -> None:
    """Download the default model into the cache folder, once, and check it against its SHA-256.

    Later calls find it there and do nothing. `octavo models fetch` fetches others.
    """
    # Loads the download code, which no other command needs when the model is there.
    from octavo.models.default_model import DEFAULT_MODEL, resolve_model_path

    path = resolve_model_path(DEFAULT_MODEL.name)
    stdout_console().print(f"{DEFAULT_MODEL.name} is at {path}", soft_wrap=True, markup=False)
