"""A script of its own with determined.core: reports, its length, checkpoints, stop. Ranks by torchrun, or one."""

import json
import os
from pathlib import Path

import determined as det

info = det.get_cluster_info()
assert info is not None
hparams = info.trial.hparams


def main(core_context: det.core.Context) -> None:
    first, rank = 0, core_context.distributed.rank
    if info.latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
            first = json.loads((path / f"state{rank}").read_text())
        assert core_context.checkpoint.get_metadata(info.latest_checkpoint) == {"steps_completed": first}
    for op in core_context.searcher.operations():
        for step in range(first + 1, int(op.length) + 1):
            if hparams.get("bad"):
                raise det.InvalidHP("bad")
            if os.environ.get("STOP_AT") == str(step) and rank == 0:
                Path(os.environ["SLURM_PLUGIN_METRICS"]).with_name("stop").touch()
            loss = sum(core_context.distributed.allgather(1 / step))
            core_context.train.report_training_metrics(steps_completed=step, metrics={"loss": loss})
            if rank == 0:
                op.report_progress(step)
            if step % 5 == 0:
                with core_context.checkpoint.store_path({"steps_completed": step}, shard=True) as (path, uuid):
                    (path / f"state{rank}").write_text(str(step))
                assert uuid == f"step-{step:08}"
                assert core_context.train.get_experiment_best_validation() is None
                core_context.train.report_validation_metrics(step, {"validation_loss": loss, "epochs": step / 5})
                if core_context.preempt.should_preempt():
                    return
        if rank == 0:
            op.report_completed(loss)


several = int(os.environ.get("WORLD_SIZE", "1")) > 1
distributed = det.core.DistributedContext.from_torch_distributed() if several else None
with det.core.init(distributed=distributed) as context:
    main(context)
