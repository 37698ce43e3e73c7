"""What the ResNet-50 examples came to on digits: kept in docs/resnet50-frameworks.json, shown in docs/resnet50.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tests.frameworks.results import DOCS, replace_table

RECORDS = DOCS / "resnet50-frameworks.json"
DOCUMENT = DOCS / "resnet50.md"


@dataclass(frozen=True)
class Quality:
    """One way to train, alone from the weights that all share, or on two ranks through its job file."""

    name: str
    kind: str
    """`one process` or `two ranks`."""
    versions: dict[str, str]
    first_difference: float | None = None
    """Of the loss from PyTorch's, in the first three steps."""
    largest_difference: float | None = None
    """The same in any of the twelve."""
    top1: float | None = None
    epoch_losses: tuple[float, ...] = ()
    images_per_s: float | None = None


def write(qualities: Iterable[Quality]) -> None:
    """Replace what was known of these; keep the rest."""
    known = {(quality.name, quality.kind): quality for quality in [*read(), *qualities]}
    RECORDS.write_text(json.dumps([asdict(quality) for quality in known.values()], indent=2) + "\n")
    replace_table(DOCUMENT, table(known.values()))


def read() -> list[Quality]:
    entries = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
    return [Quality(**{**entry, "epoch_losses": tuple(entry["epoch_losses"])}) for entry in entries]


def table(qualities: Iterable[Quality]) -> str:
    """The start first, then the trainings on two ranks."""
    found = list(qualities)
    text = "| one process, from PyTorch's first weights | versions | loss apart, steps 1 to 3 | steps 1 to 12 |\n"
    text += "|---|---|---|---|\n"
    for quality in found:
        if quality.largest_difference is not None:
            apart = f"{quality.first_difference:.4f} | {quality.largest_difference:.3f}"
            text += f"| {quality.name} | {_versions(quality)} | {apart} |\n"
    text += "\n| two ranks, 8 epochs | versions | loss in epochs 2, 5, 8 | top-1 | images/s (2 shared CPU cores) |\n"
    text += "|---|---|---|---|---|\n"
    for quality in found:
        if quality.top1 is not None:
            losses = ", ".join(f"{quality.epoch_losses[epoch]:.2f}" for epoch in (1, 4, 7))
            reached = f"{losses} | {quality.top1:.1%} | {quality.images_per_s:.0f}"
            text += f"| {quality.name} | {_versions(quality)} | {reached} |\n"
    return text


def _versions(quality: Quality) -> str:
    return ", ".join(f"{package} {version}" for package, version in quality.versions.items())
