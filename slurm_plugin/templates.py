"""Where the templates are, and how they are rendered: undefined names are errors, nothing is escaped for HTML.

A site's own stand in `templates/` of the site directory and take the place of ours of the same name; as `shipped/NAME`
ours can still be extended. Root must own them: they become scripts of every user, and root's hooks.
"""

import os
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import (
    BaseLoader,
    ChoiceLoader,
    Environment,
    FileSystemLoader,
    PrefixLoader,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
)

from slurm_plugin import trust
from slurm_plugin.compiled import DEFAULT_ROOT
from slurm_plugin.errors import UsageError

SITE_DIRECTORY: Final = Path(DEFAULT_ROOT, "templates")
SHIPPED: Final = "shipped"  # the prefix of our own


def shipped_directory(name: str) -> Path:
    """`slurm_plugin/NAME` of an installed wheel, else `NAME/` beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / name
    return installed if installed.is_dir() else package.parent / name


def templates_directory() -> Path:
    """Where our own templates are."""
    return shipped_directory("templates")


def bash(text: str) -> str:
    """A text as one word of bash. Carriage returns are escapes: sbatch takes no script with one before a newline."""
    return shlex.quote(text).replace("\r", "'$'\\r''")


class _Trusted(FileSystemLoader):
    """Templates that nobody but root can change."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """As FileSystemLoader. Raises UsageError for one that others can change."""
        found = super().get_source(environment, template)
        if place := trust.exposed(found[1]):
            raise UsageError(
                f"{found[1]}: {place} can be changed by others than root, and templates become scripts of all users\n"
                f"  look at it and then run: chown root {place}; chmod go-w {place}"
            )
        return found


@cache
def environment(site: Path | None = None, *, traced: bool = False) -> Environment:
    """The Jinja environment of every template; the filter `sh` quotes a word for a POSIX shell."""
    ours = FileSystemLoader(templates_directory())
    theirs: list[BaseLoader] = [_Trusted(site)] if site is not None and _is_there(site) else []
    jinja = Environment(
        loader=ChoiceLoader([*theirs, ours, PrefixLoader({SHIPPED: ours})]),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - bash and Lua, not HTML; the filter `sh` quotes
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["slurm_plugin.tracing.Tracing"] if traced else [],
    )
    jinja.filters["sh"] = shlex.quote
    jinja.filters["bash"] = bash
    return jinja


def _is_there(site: Path) -> bool:
    """Whether a site has templates. Raises UsageError where it has, and they cannot be read here."""
    try:
        with os.scandir(site):
            return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UsageError(
            f"{site}: {error.strerror}; a site's templates are for all to read\n  run: chmod -R go+rX {site}"
        ) from error


def render(name: str, *, site: Path | None = SITE_DIRECTORY, **values: object) -> str:
    """The text of one template. `site`: where a site has its own.

    Raises UsageError where one of the site's cannot be rendered: a mistake in it, a name that it misses.
    """
    return _rendered(environment(site), name, values)


def traced(name: str, *, site: Path | None = SITE_DIRECTORY, **values: object) -> list[tuple[str, str]]:
    """The lines of one template, each with the `FILE:LINE` that it comes from."""
    from slurm_plugin import tracing  # noqa: PLC0415 - for render --explain alone

    return tracing.origins(_rendered(environment(site, traced=True), name, values))


def _rendered(jinja: Environment, name: str, values: dict[str, object]) -> str:
    try:
        return jinja.get_template(name).render(**values)
    except TemplateNotFound as error:
        raise UsageError(
            f"the template {name}: found no {error.name}\n  ours are in {templates_directory()}"
        ) from error
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}\n  run: chmod go+r {error.filename}") from error
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:  # of an expression, or of its encoding
        raise UsageError(
            f"the template {name}: {error}\n  compare it with ours: {templates_directory() / name}"
        ) from error
    except TemplateError as error:
        where = f"{getattr(error, 'filename', None) or name}, line {getattr(error, 'lineno', '?')}"
        raise UsageError(
            f"the template {where}: {error.message}\n  compare it with ours: {templates_directory() / name}"
        ) from error
