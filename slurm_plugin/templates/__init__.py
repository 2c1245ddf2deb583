"""Find and render templates. Undefined names are errors. Nothing is escaped for HTML.

A template in the site directory's `templates/` replaces the shipped template of the same name and can extend it as
`shipped/NAME`. Only root may change a site's templates, because they become users' scripts and root's hooks.
"""

import os
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

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

from slurm_plugin.errors import UsageError
from slurm_plugin.records.site_settings import DEFAULT_ROOT

if TYPE_CHECKING:
    from slurm_plugin.templates.tracing import Traced

SITE_DIRECTORY: Final = Path(DEFAULT_ROOT, "templates")
SHIPPED: Final = "shipped"  # the prefix of shipped templates


def shipped_directory(name: str) -> Path:
    """Return `slurm_plugin/NAME` of an installed wheel, or `NAME/` beside the package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed, checkout = package / name, package.parent / name
    # A wheel puts the data into a package of the same name, such as this one, so ignore Python files.
    shipped = any(each.suffix != ".py" and each.name != "__pycache__" for each in installed.glob("*"))
    return installed if shipped else checkout


def templates_directory() -> Path:
    """Return the directory of the shipped templates."""
    return shipped_directory("templates")


def bash(text: str) -> str:
    """Quote a text as one word of bash. Escape carriage returns, because sbatch refuses a script with CR LF."""
    return shlex.quote(text).replace("\r", "'$'\\r''")


class _Trusted(FileSystemLoader):
    """Loads templates that only root can change."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """Read a template. Raise UsageError if users other than root can change it."""
        from prechecks.files import exposed  # noqa: PLC0415 - most sites have no templates

        found = super().get_source(environment, template)
        if place := exposed(found[1]):
            raise UsageError(
                f"{found[1]}: {place} can be changed by others than root, and templates become scripts of all users\n"
                f"  look at it and then run: chown root {place}; chmod go-w {place}"
            )
        return found


@cache
def environment(site: Path | None = None, *, traced: bool = False) -> Environment:
    """Return the Jinja environment of all templates. Its filters `sh` and `bash` quote a word for these shells."""
    ours = FileSystemLoader(templates_directory())
    theirs: list[BaseLoader] = [_Trusted(site)] if site is not None and _is_there(site) else []
    jinja = Environment(
        loader=ChoiceLoader([*theirs, ours, PrefixLoader({SHIPPED: ours})]),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - bash and Lua, not HTML; the filter `sh` quotes
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["slurm_plugin.templates.tracing.Tracing"] if traced else [],
    )
    jinja.filters["sh"] = shlex.quote
    jinja.filters["bash"] = bash
    return jinja


def _is_there(site: Path) -> bool:
    """Return whether a site has a templates directory. Raise UsageError if it cannot be read."""
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
    """Render one template and return its text. `site` is the directory of the site's templates.

    Raise UsageError if the template is missing, has a mistake or uses an unknown name.
    """
    return _rendered(environment(site), name, values)


def traced(name: str, *, site: Path | None = SITE_DIRECTORY, **values: object) -> list["Traced"]:
    """Render one template. Return its lines, each with its place in the template. Raise UsageError as `render` does."""
    from slurm_plugin.templates import tracing  # noqa: PLC0415 - imports jinja2.ext: 10 ms, for render --explain alone

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
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:  # in an expression, or in the encoding
        raise UsageError(
            f"the template {name}: {error}\n  compare it with ours: {templates_directory() / name}"
        ) from error
    except TemplateError as error:
        where = f"{getattr(error, 'filename', None) or name}, line {getattr(error, 'lineno', '?')}"
        raise UsageError(
            f"the template {where}: {error.message}\n  compare it with ours: {templates_directory() / name}"
        ) from error
