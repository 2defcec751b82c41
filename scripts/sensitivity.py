"""How much does one split depend on rounding? Run it again with initial weights changed by one part in ten million.

    python scripts/sensitivity.py dataset=protein ablation=no_anchor anchor=trees splits=13

Training for hundreds of epochs amplifies such a change until other experts are chosen; where this moves a split's NLL
by more than a published standard error, only means over many splits can be compared.
"""

import sys

import torch

from anchormoe.commands.run import parse
from anchormoe.model import paper
from anchormoe.model.network import AnchorMoE
from anchormoe.running.evaluate import evaluate
from anchormoe.running.tasks import make_task
from anchormoe.running.threads import one_thread

RELATIVE_CHANGE = 1e-7
NUM_CHANGES = 4


def main() -> None:
    (job,) = parse(sys.argv[1:])
    drawn = paper.initial_model
    with one_thread():
        for split in job.split_numbers():
            for change in range(NUM_CHANGES + 1):

                def changed(*arguments, change=change, **settings) -> AnchorMoE:
                    model = drawn(*arguments, **settings)
                    if change:  # 0 is the split as it is
                        _perturb(model, torch.Generator().manual_seed(change))
                    return model

                paper.initial_model = changed
                row = evaluate(make_task(job.config(), split))
                print(
                    f"split {split} change {change}: epoch {row['epoch']} "
                    f"nll_z {row['nll_z']:.4f} rmse_y {row['rmse_y']:.4f}",
                    flush=True,
                )


@torch.no_grad()
def _perturb(model: AnchorMoE, generator: torch.Generator) -> None:
    for parameter in model.parameters():
        parameter.mul_(1 + RELATIVE_CHANGE * torch.randn(parameter.shape, generator=generator))


if __name__ == "__main__":
    main()
