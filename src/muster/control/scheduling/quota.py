"""What users and experiments may hold of a cluster at a time."""

from __future__ import annotations

from collections.abc import Iterable

from muster.control.scheduling.model import Gang, Rules, Running


class Usage:
    """Nodes and GPUs in use on one cluster, by user and by experiment."""

    def __init__(self, rules: Rules, gpus_per_node: int, running: Iterable[Running] = ()) -> None:
        self._rules = rules
        self._gpus_per_node = gpus_per_node
        self._used: dict[tuple[str, str], list[float]] = {}
        quotas = (rules.per_user, rules.per_experiment, *rules.users.values(), *rules.experiments.values())
        self.limited = any(quota.nodes is not None or quota.gpus is not None for quota in quotas)
        if self.limited:
            for item in running:
                self.add(item)

    def add(self, running: Running) -> None:
        for key in (("user", running.user), ("experiment", running.experiment)):
            used = self._used.setdefault(key, [0, 0])
            used[0] += len(running.parts)
            used[1] += running.num_gpus

    def exceeded_by(self, gang: Gang) -> str:
        """Why the gang may not start on top of what its user and experiment hold already; empty when it may."""
        if not self.limited:
            return ""
        rules = self._rules
        for kind, name, quota in (
            ("user", gang.user, rules.users.get(gang.user, rules.per_user)),
            ("experiment", gang.experiment, rules.experiments.get(gang.experiment, rules.per_experiment)),
        ):
            nodes, gpus = self._used.get((kind, name), (0, 0))
            each = self._gpus_per_node if gang.need.gpus is None else gang.need.gpus
            more = gang.need.nodes * each * gang.need.share
            for used, wanted, limit, what in (
                (nodes, gang.need.nodes, quota.nodes, "nodes"),
                (gpus, more, quota.gpus, "GPUs"),
            ):
                if limit is not None and used + wanted > limit:
                    return (
                        f"the {kind} {name} may hold {limit} {what} of {gang.cluster} at a time, "
                        f"holds {used:g} and needs {wanted:g} more"
                    )
        return ""
