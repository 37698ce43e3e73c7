"""Top-1 and top-5 over all ranks: every image counts once, and padding does not count."""

from collections.abc import Iterable

import torch
from pixels import normalize
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from muster.training import World


def validate(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], world: World, amp: bool) -> dict[str, float]:
    """The figures of the whole validation set; every rank gets them."""
    # The running statistics differ between ranks.
    world.share(model.buffers())
    model.eval()
    counts = torch.zeros(4, dtype=torch.float64, device=world.device)
    with torch.inference_mode():
        for images, labels in batches:
            with torch.autocast(world.device.type, torch.bfloat16, enabled=amp):
                scores = model(normalize(images))
            counts += count(scores.float(), labels)
    model.train()
    images_seen, top1, top5, loss = world.sum(counts).tolist()
    return {"top1": top1 / images_seen, "top5": top5 / images_seen, "val_loss": loss / images_seen}


def count(scores: Tensor, labels: Tensor) -> Tensor:
    """Images, top-1 and top-5 hits, and the sum of losses; padding (-1) does not count."""
    real = labels >= 0
    best = scores.topk(min(5, scores.shape[1])).indices
    hits = (best == labels[:, None]) & real[:, None]
    loss = cross_entropy(scores, labels, ignore_index=-1, reduction="sum")
    return torch.stack([real.sum(), hits[:, 0].sum(), hits.sum(), loss]).double()
