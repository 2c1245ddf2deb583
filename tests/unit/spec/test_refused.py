"""Messages about a refused spec: every problem, with the accepted values."""

from slurm_plugin.spec import Spec
from slurm_plugin.spec.documents import MAX_BYTES
from tests.unit.spec.small import problems, refusal

KEYS = ", ".join(Spec.__struct_fields__)


def test_all_problems_are_told_at_once() -> None:
    """Each with its line, its place, what was found, what is accepted and the nearest word; nothing is submitted."""
    text = """name: a b
mode: pytroch
nodes: 0
accelerators:
  gpus: 8
retires: 3
env: {X: [1]}
metadata: 3
"""
    assert refusal(text) == (
        "job.yaml: 8 problems, nothing was submitted\n"
        "  line 1: name: found 'a b'; accepted: a name of up to 64 letters, digits, `.`, `_` and `-`, the first a"
        " letter or digit\n"
        "  line 1: command: missing; accepted: a command that begins with an executable\n"
        "  line 2: mode: found 'pytroch'; accepted: single, openmpi, mpich, intelmpi, horovod, pytorch,"
        " deepspeed, tensorflow, ascend, script; did you mean pytorch?\n"
        "  line 3: nodes: found '0'; accepted: a whole number from 1 to 65536, or a range such as"
        " 4-8\n"
        "  line 5: accelerators.gpus: unknown key; accepted: gpu, npu, type; did you mean gpu?\n"
        f"  line 6: retires: unknown key; accepted: {KEYS}; did you mean retries?\n"
        "  line 7: env.X: found a list; accepted: a text\n"
        "  line 8: metadata: found '3'; accepted: {annotations: {fault-tolerance/job-retry-num: a whole number from 0"
        " to 128, fault-tolerance/job-unconditional-retry: true, false}}\n"
        "  correct the file, then run: slurm-plugin render job.yaml"
    )


PATH_RULE = "a path without control characters, backslashes, double quotes, `$` or a leading `~`"


ONE_PROBLEM = {
    "nodes: many": "line 4: nodes: found 'many'; accepted: a whole number from 1 to 65536, or a range such as 4-8",
    "nodes: 2.5": "line 4: nodes: found '2.5'; accepted: a whole number from 1 to 65536, or a range such as 4-8",
    "nodes:": "line 4: nodes: found nothing; accepted: a whole number from 1 to 65536, or a range such as 4-8",
    "accelerators: {gpu: -1}": "line 4: accelerators.gpu: found '-1'; accepted: a whole number from 0 to 1024",
    "accelerators: 4": "line 4: accelerators: found '4'; accepted: {gpu: a whole number from 0 to 1024, npu: a whole"
    " number from 0 to 1024, type: a name of letters, digits and `_.+@:-`}",
    "retries: 129": "line 4: retries: found '129'; accepted: a whole number from 0 to 128",
    "queue_timeout: soon": "line 4: queue_timeout: found 'soon'; accepted: 0 or never for no end; up to 999999s: 90s,"
    " 30m, 4h, 2d, or Slurm's MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS",
    "infiniband: Yes": "line 4: infiniband: found 'Yes'; accepted: auto, yes, no; did you mean yes?",
    "hold_on_failure: 0": "line 4: hold_on_failure: found '0'; accepted: yes (4h), no, more than 0 (Slurm"
    " reads 0 as no limit): 90s, 30m, 4h, 2d, or Slurm's MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS",
    "hold_on_failure: on": "line 4: hold_on_failure: found 'on'; accepted: yes (4h), no, 90s, 30m, 4h, 2d, or Slurm's"
    " MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS",
    "time: 4 hours": "line 4: time: found '4 hours'; accepted: 90s, 30m, 4h, 2d, or Slurm's MINUTES, MM:SS, HH:MM:SS,"
    " D-HH, D-HH:MM, D-HH:MM:SS, or UNLIMITED",
    "time: 0": "line 4: time: found '0'; accepted: more than 0 (Slurm reads 0 as no limit): 90s, 30m, 4h, 2d, or"
    " Slurm's MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS, or UNLIMITED",
    "launch: rank": "line 4: launch: found 'rank'; accepted: node, task",
    "tensorflow: {ps: 1}": "line 4: tensorflow: found it in mode openmpi; only mode tensorflow accepts it",
    "ascend: {table: no}": "line 4: ascend: found it in mode openmpi; only mode ascend accepts it",
    "accelerators: {gpu: 1, npu: 1}": "line 4: accelerators: found gpu and npu; accepted: one of the two",
    "prechecks: [gpu]": "line 4: prechecks: found 'gpu'; accepted: a list of fabric, such as [fabric]",
    'output: "a\\n#SBATCH --uid=0"': f"line 4: output: found 'a\\n#SBATCH --uid=0'; accepted: {PATH_RULE}",
    'output: "a\\\\b"': f"line 4: output: found 'a\\\\b'; accepted: {PATH_RULE}",
    "checkpoint: $HOME/x": f"line 4: checkpoint: found '$HOME/x'; accepted: {PATH_RULE}",
    "workdir: ~/x": "line 4: workdir: found '~/x'; accepted: a path without control characters, backslashes, double"
    " quotes, `$`, `%` or a leading `~`",
    "env: {A-B: 1}": "line 4: env.A-B: accepted names: letters, digits and `_`, the first not a digit",
    "env: {SLURM_PLUGIN_LAUNCH: 1}": "line 4: env.SLURM_PLUGIN_LAUNCH: SLURM_ names are Slurm's and ours; choose"
    " another name, or an input variable of srun: man srun",
    "env: {UID: 0}": "line 4: env.UID: bash does not let a script set it; choose another name",
    'env: {A: "\\0"}': "line 4: env.A: the value has a NUL, or what is no UTF-8, in it; accepted: text",
    "env: [A=1]": "line 4: env: found a list; accepted: a mapping of `NAME: value` lines",
    '"\\e[2J\\ud800": 1': f"line 4: ?[2J?: unknown key; accepted: {KEYS}",
    "modules: [gcc, -f]": "line 4: modules: found '-f'; accepted: names such as `gcc/12.2.0`, or a list of them",
    "env_file: [a, $HOME/x]": f"line 4: env_file: found '$HOME/x'; accepted: {PATH_RULE}, or a list",
    "stage_in: [{from: /a/b c}]": "line 4: stage_in.0: found '/a/b c', whose last part cannot be its name;"
    " give `to: NAME` beside it",
    "stage_in: [{from: /a/x}, {from: /b/x}]": "line 4: stage_in.1: found the name 'x' twice; give `to: NAME` beside it",
    "stage_in: /a": f"line 4: stage_in: found '/a'; accepted: a list of {{from: {PATH_RULE}, to: a name of up to 64"
    " letters, digits, `.`, `_` and `-`, the first a letter or digit}",
    "stage_in: [{to: x}]": f"line 4: stage_in.0.from: missing; accepted: {PATH_RULE}",
    "hooks: {before: [a.sh, b]}": "line 4: hooks.before: found 'b'; accepted: a .sh, which bash runs, or a .py",
    "hooks: {on_hold: tell}": "line 4: hooks.on_hold: found 'tell'; accepted: a .sh, which bash runs, or a .py",
    "share: {access: read-write}": "line 4: share.group: missing; give the group, one of: id -Gn",
    "share: {}": "line 4: share.group: missing; give the group, one of: id -Gn",
    "share: {group: team, access: write}": "line 4: share.access: found 'write'; accepted: none, read-only, read-write",
    "share: {group: 'a b'}": "line 4: share.group: found 'a b'; accepted: a name of letters, digits and `_.+@:-`",
    "performance: {threshold: 0.8, action: reschedule}": (
        "line 4: performance.action: found reschedule without restarts; give `retries: 1` or more, or `action: alert`"
    ),
    "performance: {threshold: 0.8, action: reschedule}\nretries: 1\ndeadline: 2030-01-01": (
        "line 4: performance.action: found reschedule with `deadline`: a requeue begins the time limit anew, and the "
        "deadline may then end the job; write `action: alert`"
    ),
    "performance: {threshold: 1.8}": (
        "line 4: performance.threshold: found '1.8'; accepted: a number above 0, at most 1"
    ),
    "performance: {threshold: 1, pattern: '(a)'}": (
        "line 4: performance.pattern: found '(a)'; accepted: a regular expression with two groups, such as "
        r"hw (?P<hardware>[\d.]+) of (?P<e2e>[\d.]+)"
    ),
    "share: team": "line 4: share: found 'team'; accepted: {group: a name of letters, digits and `_.+@:-`, access:"
    " none, read-only, read-write}",
    "hooks: {found: maybe}": "line 4: hooks.found: found 'maybe'; accepted: yes, no",
    "open_mode: truncate\nretries: 1": "line 4: open_mode: found truncate with restarts, each of which would"
    " delete the earlier log; accepted: append",
    "error: a.err\narray: 0-3": "line 4: error: found 'a.err' for an array; accepted: a name with %a or %j in it, as"
    " each task has a log of its own",
    "logs: {label: yes}": "line 4: logs.label: found yes where no srun of ours starts the tasks, which would label"
    " their lines; write `launch: task`, or leave it out",
    "logs: {per: task}": "line 4: logs.per: found 'task'; accepted: job, node, rank, both",
    "prechecks: [fabrik]": "line 4: prechecks: found 'fabrik'; accepted: a list of fabric, such as [fabric]; did you"
    " mean fabric?",
    "prechecks: fabric": "line 4: prechecks: found 'fabric'; accepted: a list of fabric, such as [fabric]",
    "partition: [gpu, a b]": "line 4: partition: found 'a b'; accepted: a name of letters, digits and `_.+@:-`, or a"
    " list of names",
    "<<: {a: b}": f"line 4: <<: unknown key; accepted: {KEYS}",
}


def test_a_wrong_value_is_named_with_what_is_accepted() -> None:
    """Types, ranges, words, and everything that an #SBATCH line cannot contain."""
    for text, wanted in ONE_PROBLEM.items():
        assert problems(text) == [wanted], text


def test_a_command_that_a_shell_would_have_to_run_is_refused() -> None:
    """With a hint."""
    assert "line 3: command: found && in it: no shell runs this command; quote it to keep it, or let bash run it: " in (
        refusal("name: a\nmode: openmpi\ncommand: a && b\n")
    )


NOT_A_SPEC = {
    b"name: a\nname: b\n": "job.yaml: line 2: name: found twice, first in line 1",
    b"env:\n  A: 1\n  A: 2\n": "job.yaml: line 3: env.A: found twice, first in line 2",
    b"a: &x [1]\nb: *x\n": "job.yaml: line 2: aliases (*name) are not accepted",
    b"? [a]\n: b\n": "job.yaml: line 1: a key must be a word",
    b"name: a\nretries = 1\nmode: single\n": "job.yaml: line 2: found 'retries = 1'; accepted: key: value",
    b"name: a\n b: c\n": "job.yaml: line 2: mapping values are not allowed here",
    b'a: "\\UFFFFFFFF"\n': "job.yaml: Python int too large to convert to C int",
    b"- a\n": "job.yaml: found a list; `key: value` lines are accepted",
    b"\xff": "job.yaml: byte 0 is not UTF-8; save the file as UTF-8",
    b"[" * 100_000: "job.yaml: nested too deeply; three levels are enough",
    b"#" * (MAX_BYTES + 1): "job.yaml: more than 1048576 bytes; a file written by hand has a few hundred",
}


def test_what_is_no_spec_at_all_is_refused() -> None:
    """Double keys, aliases (which can be bombs), depth and size: one line that names the fault."""
    for data, wanted in NOT_A_SPEC.items():
        assert refusal(data).splitlines()[0] == wanted, data
