"""Where each line of a rendered template comes from: a mark behind each, that an extension of Jinja's writes."""

import re
from collections.abc import Iterator
from typing import Final

from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

_MARK: Final = re.compile("\x1e([^\x1f]*)\x1f")


class Tracing(Extension):
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


def origins(text: str) -> list[tuple[str, str]]:
    """The lines of a text with marks, each without them and with the `FILE:LINE` that it comes from."""
    lines, origin = [], ""
    for line in reversed(text.removesuffix("\n").split("\n")):  # what a value's own newline ends is its line's, too
        origin = next(iter(reversed(_MARK.findall(line))), origin)
        lines.append((_MARK.sub("", line), origin))
    return lines[::-1]
