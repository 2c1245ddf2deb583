"""Where the templates are, and how they are rendered: undefined names are errors, nothing is escaped for HTML."""

import shlex
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def templates_directory() -> Path:
    """`slurm_plugin/templates` of an installed wheel, else `templates/` beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


@cache
def environment() -> Environment:
    """The Jinja environment of every template; the filter `sh` quotes a word for a POSIX shell."""
    jinja = Environment(
        loader=FileSystemLoader(templates_directory()),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - bash and Lua, not HTML; the filter `sh` quotes
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters["sh"] = shlex.quote
    return jinja


def render(name: str, **values: object) -> str:
    """The text of one template. Raises jinja2.UndefinedError where a value is missing."""
    return environment().get_template(name).render(**values)
