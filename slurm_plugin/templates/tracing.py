"""Find the template line of each line of a rendered text: an extension of Jinja marks the end of each line."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

_MARK: Final = re.compile("\x1e([^\x1f]*) ([^ \x1f]*)\x1f")


class Traced(NamedTuple):
    """A line of the rendered text, its template's `FILE:LINE`, and the names in the expressions of that line."""

    text: str
    place: str = ""
    names: tuple[str, ...] = ()


class Tracing(Extension):
    """Add a mark to the end of each line: its place in the template, and the names that it prints."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Mark the tokens of one template; Jinja calls this."""
        names: list[str] = []
        printed = False
        for token in stream:
            printed = token.type == "variable_begin" or (printed and token.type != "variable_end")
            if printed and token.type == "name":
                names.append(str(token.value))
            if token.type != "data":
                yield token
                continue
            first, *rest = token.value.split("\n")
            text = first
            for line, part in enumerate(rest, token.lineno):
                text += f"\x1e{stream.filename}:{line} {','.join(names)}\x1f\n{part}"
                names = []
            yield Token(token.lineno, "data", text)


def origins(text: str) -> list[Traced]:
    """Return the lines of a marked text, without the marks."""
    lines: list[Traced] = []
    place, names = "", ""
    for line in reversed(text.removesuffix("\n").split("\n")):  # a newline inside a value has no mark: use the next one
        place, names = next(reversed(_MARK.findall(line)), (place, names))
        lines.append(Traced(_MARK.sub("", line), place, tuple(names.split(","))))
    return lines[::-1]
