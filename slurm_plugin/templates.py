"""Where the templates are, and how they are rendered: undefined names are errors, nothing is escaped for HTML.

A site's own stand in `templates/` of the site directory and take the place of ours of the same name; as `shipped/NAME`
ours can still be extended. Root must own them: they become scripts of every user, and root's hooks.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
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
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from slurm_plugin import trust
from slurm_plugin.compiled import DEFAULT_ROOT
from slurm_plugin.errors import UsageError

SITE_DIRECTORY: Final = Path(DEFAULT_ROOT, "templates")
SHIPPED: Final = "shipped"  # the prefix of our own
_TRACE: Final = re.compile("\x1e([^\x1f]*)\x1f")


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


class _Tracing(Extension):
    """Marks the end of each line with the file and line that it comes from."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Jinja's hook: the tokens of one template."""
        for token in stream:
            if token.type != "data":
                yield token
                continue
            first, *rest = token.value.split("\n")
            marked = [f"\x1e{stream.filename}:{token.lineno + place}\x1f\n{part}" for place, part in enumerate(rest)]
            yield Token(token.lineno, "data", "".join([first, *marked]))


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
        extensions=[_Tracing] if traced else [],
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
    text = _rendered(environment(site, traced=True), name, values)
    lines, origin = [], ""
    for line in reversed(text.removesuffix("\n").split("\n")):  # what a value's own newline ends is its line's, too
        origin = next(iter(reversed(_TRACE.findall(line))), origin)
        lines.append((_TRACE.sub("", line), origin))
    return lines[::-1]


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
