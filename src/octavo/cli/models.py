"""`octavo models`: what is cached, and how models get there and away."""

from typing import Annotated

from cyclopts import App, Parameter

from octavo.cli.options import Flag

models = App(
    name="models",
    help="List the models in the caches, fetch them and remove them.",
    help_format="plaintext",
    version_flags=[],
)


@models.default
def list_(*, json: Flag = False) -> None:
    """List the default model, models of the hub, and packed weights, with their sizes.

    Args:
        json: One JSON object on stdout.
    """
    from octavo.cli.model_cache import report_models

    report_models(as_json=json)


@models.command
def fetch(name: str, *, revision: str | None = None) -> None:
    """Fetch a model, or what is missing of it.

    Args:
        name: org/model for a folder of safetensors files, org/model:Q4_K_M for a GGUF file, or the default
            model's short name.
        revision: Branch, tag or commit.
    """
    from octavo.cli.terminal import stdout_console
    from octavo.models.default_model import resolve_model_path

    path = resolve_model_path(name, revision=revision)
    stdout_console().print(f"{name} is at {path}", soft_wrap=True, markup=False)


@models.command
def remove(name: str) -> None:
    """Remove a model of the list; packed weights are made again when they are needed.

    Args:
        name: As the list has it.
    """
    from octavo.cli.model_cache import remove_model

    remove_model(name)


@models.command
def clean(*, yes: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Remove all packed weights.

    Args:
        yes: Do it; without this it is only said what would go.
    """
    from octavo.cli.model_cache import clean_packed

    clean_packed(really=yes)
