"""What others call our keys: sbatch's flags, and the words of job specs of other systems."""

from typing import Final

from slurm_plugin.spec.passed import KEY_OF

_GPUS, _SCRIPT = "accelerators: {gpu: N}, those of each node", "command, or mode: script for a script of your own"
# Words in the form that `meant` compares -> what to write here.
WORDS: Final = {
    **{flag.replace("-", "_"): key for flag, key in KEY_OF.items() if flag.replace("-", "_") != key},
    **dict.fromkeys(("gpu", "gpus", "gres", "gpus_per_node", "num_gpus", "gpus_per_task", "devices"), _GPUS),
    **dict.fromkeys(("npu", "npus"), "accelerators: {npu: N}, those of each node"),
    **dict.fromkeys(
        ("ntasks", "ntasks_per_node", "tasks_per_node", "nproc_per_node", "slots"),
        "accelerators: as many processes on each node as it has of them",
    ),
    **dict.fromkeys(("num_nodes", "nnodes", "n_nodes", "workers", "replicas", "node_count"), "nodes"),
    **dict.fromkeys(("cmd", "exec", "executable", "entrypoint", "args", "program"), "command"),
    **dict.fromkeys(("run", "script", "wrap", "commands"), _SCRIPT),
    **dict.fromkeys(("environment", "envs", "env_vars", "variables", "export"), "env"),
    **dict.fromkeys(("mem", "ram"), "memory"),
    **dict.fromkeys(("cpu", "cores", "vcpus", "cpus_per_task"), "cpus, those of each node"),
    **dict.fromkeys(("time_limit", "walltime", "timeout", "timeout_min", "max_time", "duration"), "time"),
    **dict.fromkeys(("max_retries", "restarts", "max_restarts", "requeue", "retry", "resumes"), "retries"),
    **dict.fromkeys(("job_name", "jobname", "title"), "name"),
    **dict.fromkeys(("chdir", "cwd", "working_dir", "working_directory", "work_dir"), "workdir"),
    **dict.fromkeys(("log", "stdout", "logfile", "log_file"), "output"),
    **dict.fromkeys(("stderr", "errors", "error_file"), "error"),
    **dict.fromkeys(("env_files", "dotenv"), "env_file"),
    **dict.fromkeys(("module", "module_load"), "modules"),
    **dict.fromkeys(("queue", "partitions"), "partition"),
    **dict.fromkeys(("email", "mail_user", "mail_type"), "mail: {user: ..., type: ...}"),
    **dict.fromkeys(("framework", "backend", "launcher", "kind"), "mode"),
    **dict.fromkeys(("checkpoints", "checkpoint_dir", "ckpt"), "checkpoint, a directory"),
    **dict.fromkeys(("features", "feature"), "constraint"),
    **dict.fromkeys(("image", "docker", "apptainer", "singularity", "enroot", "pyxis"), "container: {image: ...}"),
    **dict.fromkeys(("het", "hetjob", "components", "roles", "tasks"), "groups, the resources of each kind of nodes"),
    **dict.fromkeys(("data", "datasets", "dataset", "inputs"), "stage_in: [{from: ...}]"),
    **dict.fromkeys(("hold", "debug"), "hold_on_failure"),
}


def meant(key: str) -> str:
    """What to write in place of a key that there is not; empty where nobody calls one of ours so."""
    return WORDS.get(key.lower().replace("-", "_"), "")
