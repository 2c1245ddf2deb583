"""Hostile specs: texts for every text key, and whole files."""

import json
import shlex
from typing import Any

# If a shell, sbatch, Jinja or YAML interprets one of these texts, there is a file `executed`, or a job of another user.
TEXTS = {
    "new line": "a\n#SBATCH --uid=0\ntouch executed",
    "carriage return": "a\r#SBATCH --uid=0\r\nb",
    "form feed and vertical tab": "a\f#SBATCH --uid=0\vb",
    "line separator": "a\u2028#SBATCH --uid=0",
    "paragraph separator": "a\u2029#SBATCH --uid=0",
    "next line": "a\x85#SBATCH --uid=0",
    "tab": "a\tb",
    "double quote": 'a" --uid=0 "b',
    "single quote": "it's 'quoted",
    "both quotes": "\"'\"'",
    "command substitution": "$(touch executed)",
    "backticks": "`touch executed`",
    "variable": "$HOME ${IFS} $0",
    "arithmetic": "$((1+1))",
    "backslash": "a\\nb\\",
    "hash": "#",
    "hash in the middle": "a #b",
    "semicolon": "a; touch executed",
    "ampersand and pipe": "a && touch executed | tee executed & touch executed",
    "redirection": "a >executed 2>executed <<EOF",
    "glob": "*?[a-z]",
    "tilde": "~root",
    "brace expansion": "{a,b}",
    "history": "!! !1",
    "Jinja": "{{ 7 * 7 }}{% raw %}{# x #}",
    "percent": "50%j %u %% %A_%a",
    "leading dash": "-rf",
    "a flag": "--uid=0",
    "equals": "a=b --uid=0",
    "colon": "a: b, c: d",
    "blanks": "  a  b  ",
    "nothing": "",
    "umlaut": "gr\u00f6\u00dfe",
    "wide": "\u65e5\u672c \U0001f600",
    "right to left": "\u202egnp.exe\u202c",
    "zero width": "a\u200bb\ufeffc",
    "combining": "e" + "\u0301" * 30,
    "half a surrogate pair": "a\ud800b",
    "NUL": "a\0b",
    "escape sequence": "\x1b[2J\x1b]0;x\x07",
    "delete": "\x7f\x9b",
    "our token": "[sp1;retries=128;ib=yes]",
    "end of a here document": "EOF\nEOF",
    "long": "x" * 5000,
    "1 MB": "y" * 1_000_000,
}


def _group(keys: dict[str, Any]) -> dict[str, Any]:
    return {"mode": "pytorch", "groups": [{}, keys]}


# Key -> a function that returns a part of a spec with the text in this key.
KEYS = {
    "name": lambda text: {"name": text},
    "extends": lambda text: {"extends": text},
    "mode": lambda text: {"mode": text},
    "command": lambda text: {"command": text},
    "an argument": lambda text: {"command": f"./a.out {shlex.quote(text)}"},
    "a script": lambda text: {"mode": "script", "command": f"true {shlex.quote(text)}"},
    "env": lambda text: {"env": {"A": text}},
    "env_file in a list": lambda text: {"env_file": ["a", text]},
    "modules in a list": lambda text: {"modules": ["gcc", text]},
    "stage_in.from": lambda text: {"stage_in": [{"from": text, "to": "a"}]},
    "stage_in.to": lambda text: {"stage_in": [{"from": "a", "to": text}]},
    "hooks.before": lambda text: {"hooks": {"before": f"{text}.sh"}},
    "hooks.on_hold": lambda text: {"hooks": {"on_hold": f"{text}.py"}},
    "hooks.after": lambda text: {"hooks": {"after": ["a.py", f"{text}.py"]}},
    "logs.directory": lambda text: {"mode": "pytorch", "logs": {"per": "node", "directory": text}},
    "a name in env": lambda text: {"env": {text: "1"}},
    "a flag's name": lambda text: {"sbatch": {text: "1"}},
    "a flag": lambda text: {"sbatch": {"wckey": text}},
    "comment": lambda text: {"sbatch": {"comment": text}},
    "gres": lambda text: {"sbatch": {"gres": text}},
    "accelerators.type": lambda text: {"accelerators": {"gpu": 1, "type": text}},
    "mail.user": lambda text: {"mail": {"user": text, "type": "END"}},
    "mail.type": lambda text: {"mail": {"type": text}},
    "exclude in a list": lambda text: {"exclude": [text, "n1"]},
    "a group's type": lambda text: _group({"accelerators": {"gpu": 1, "type": text}}),
    **{
        f"a group's {key}": lambda text, key=key: _group({key: text}) for key in ("partition", "constraint", "nodelist")
    },
    "container.image": lambda text: {"container": {"image": text, "runtime": "apptainer"}},
    "container.image of pyxis": lambda text: {"launch": "task", "container": {"image": text, "runtime": "pyxis"}},
    "container.mounts": lambda text: {"container": {"image": "a.sif", "mounts": [text]}},
    "container.workdir": lambda text: {"container": {"image": "a.sif", "workdir": text}},
    "a key": lambda text: {text: "1"},
}
_PLAIN = (
    *(
        "account",
        "array",
        "begin",
        "checkpoint",
        "constraint",
        "deadline",
        "dependency",
        "exclude",
        "exclusive",
        "grace",
    ),
    "env_file",
    "error",
    "modules",
    *("hang_timeout", "hold_on_failure", "infiniband", "launch", "licenses", "memory", "nodelist", "nodes", "output"),
    *("partition", "qos", "queue_timeout", "reservation", "time", "workdir"),
)
KEYS |= {key: lambda text, key=key: {key: text} for key in _PLAIN}

# Whole files. None of them is a valid spec.
FILES = {
    "a bomb of aliases": b"a: &a [x,x]\n"
    + b"".join(b"%c: &%c [*%c,*%c]\n" % (n, n, n - 1, n - 1) for n in range(98, 122)),
    "deep nesting": b"name: " + b"[" * 200_000,
    "deep mappings": b"{a: " * 200_000,
    "a key twice": b"name: a\nname: b\n",
    "a key twice in JSON": b'{"name": "a", "mode": "single", "command": "x", "name": "b"}',
    "a tag": b"name: !!python/object/apply:os.system [touch executed]\nmode: single\ncommand: x\n",
    "a merge": b"<<: {name: a}\nmode: single\ncommand: x\n",
    "two documents": b"name: a\nmode: single\ncommand: x\n---\nname: b\n",
    "no UTF-8": b"name: \xff\xfe\n",
    "UTF-16": "name: a\nmode: single\ncommand: x\n".encode("utf-16"),
    "NUL": b"name: a\0\n",
    "more than a megabyte": b"#" * (1 << 20) + b"\nname: a\n",
    "many keys": b"".join(b"k%d: 1\n" % number for number in range(20_000)),
    "nothing": b"",
    "a number": b"17\n",
}


def spec(part: dict[str, Any]) -> bytes:
    """Return a small spec with this part, as JSON: JSON escapes can contain every text."""
    return json.dumps({"name": "a", "mode": "openmpi", "command": "./a.out", **part}).encode()
