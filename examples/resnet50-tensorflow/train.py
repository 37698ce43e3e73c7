"""Trains ResNet-50 in TensorFlow, data parallel: alone, with MultiWorkerMirroredStrategy, or with Horovod."""

import argparse
import os
import signal
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import exchange
import numpy as np
import tensorflow as tf
from data import batches, streams
from model import ResNet50
from options import completed, parser
from report import Log

from muster.training import ArrayCheckpointer, Throughput, learning_rate


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument(
        "--backend", choices=("mirrored", "horovod"), help="default: by what started the ranks (TF_CONFIG or mpirun)"
    )
    args = arguments.parse_args()
    ranks = exchange.join(args.backend)
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    Training(completed(args, ranks.size, on_gpu), ranks, "gpu" if on_gpu else "cpu").run()


class Training:
    """The training of a model."""

    def __init__(self, args: argparse.Namespace, ranks: exchange.Ranks, device: str) -> None:
        self._args, self._ranks = args, ranks
        self._stream, self._held_back, classes = streams(args, ranks.rank, ranks.size)
        with ranks.scope():
            dtype = tf.bfloat16 if args.amp == "bf16" else tf.float32
            self._network = ResNet50(classes, args.width, args.seed, dtype)
            self._momenta = {name: tf.Variable(tf.zeros_like(w)) for name, w in self._network.weights.items()}
        self._progress: dict[str, Any] = {"step": 0, "top1": None, "validated": None}
        self._steps_of_epoch = self._stream.samples // args.global_batch
        self._epochs = args.epochs or args.steps / self._steps_of_epoch
        self._total = args.steps or round(self._epochs * self._steps_of_epoch)
        if self._total == 0:
            raise SystemExit(f"--epochs {args.epochs:g} of {self._stream.samples} images is less than one step")
        self._throughput = Throughput(warmup_steps=args.warmup_steps)
        self._log = Log(args, ranks, self._throughput)
        self._checkpointer = None
        if args.checkpoints is not None or args.checkpoint_every or args.resume_from:
            self._checkpointer = ArrayCheckpointer(args.checkpoints, rank=ranks.rank, resume_from=args.resume_from)
            self._resume()
        if self._checkpointer is not None and "MUSTER_STOP_FILE" in os.environ:
            # A run that is stopped has time to save: ranks check `should_stop`, and the signal must not end them.
            signal.signal(signal.SIGTERM, lambda *_: None)
        self._log.begin(self._stream.samples, self._total, self._progress["step"], device)

    def run(self) -> None:
        progress, stopping = self._progress, False
        while progress["step"] < self._total and not stopping:
            stopping = self._train()
            if not stopping and self._validation_is_due():
                self._validate()
            self._save()
        self._log.end(progress, self._total, progress["step"] == self._total)
        if self._ranks.rank == 0 and progress["step"] == self._total:
            np.savez(self._args.out / "model.npz", **self._arrays(with_momenta=False))
            print(f"{self._args.out}/model.npz is the model, {self._args.out}/throughput.json has the figures")

    def _train(self) -> bool:
        """Train for the rest of an epoch; returns whether to stop."""
        args, progress, stream = self._args, self._progress, self._stream
        for images, labels in self._throughput.wait_for(stream.counted(batches(stream, args, training=True))):
            loss = self._step(images, labels, tf.constant(self._rate(), tf.float32))
            self._throughput.step(len(labels))
            progress["step"] += 1
            is_last = progress["step"] == self._total
            if progress["step"] % args.log_every == 0 or is_last:
                self._log.step(float(loss), progress["step"], self._total)
                # Every rank must leave at the same step.
                if self._ranks.any(self._log.run.should_stop()):
                    return True
            if is_last:
                return False
            # The last step of an epoch is saved after its validation.
            if args.checkpoint_every and progress["step"] % args.checkpoint_every == 0 and len(stream):
                self._save()
        return False

    @tf.function(reduce_retracing=True)
    def _step(self, images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        return self._ranks.run(self._step_of_rank, images, labels, rate)

    def _step_of_rank(self, images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        """Forward, backward, one exchange for everything that the ranks share, and Nesterov momentum."""
        args, weights, seen = self._args, self._network.weights, []
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(cross_entropy(self._network(images, seen), labels, args.label_smoothing))
        gradients = tape.gradient(loss, list(weights.values()))
        # The running statistics too, so that the ranks stay equal and rank 0 can save for all.
        loss, *found = self._ranks.mean([loss, *gradients, *(value for _, value in seen)])
        for (name, weight), gradient in zip(weights.items(), found, strict=False):
            momentum = self._momenta[name]
            if weight.shape.rank > 1:
                gradient += args.weight_decay * weight
            momentum.assign(args.momentum * momentum + gradient)
            weight.assign_sub(rate * (gradient + args.momentum * momentum))
        for (variable, _), value in zip(seen, found[len(weights) :], strict=True):
            variable.assign(0.9 * variable + 0.1 * value)
        return loss

    def _rate(self) -> float:
        """The learning rate of the current batch; a short training warms up for at most half of its time."""
        args, done = self._args, self._steps_of_epoch - len(self._stream) - 1
        return learning_rate(
            self._stream.epoch + max(done, 0) * args.global_batch / self._stream.samples,
            base=args.lr,
            scale=args.global_batch / 256,
            warmup_epochs=min(args.warmup_epochs, self._epochs / 2),
            decay=args.decay,
            epochs=self._epochs,
        )

    def _validation_is_due(self) -> bool:
        """After every few epochs and after the last step."""
        step, epoch = self._progress["step"], self._stream.epoch
        return self._held_back is not None and (step == self._total or epoch % self._args.eval_every == 0)

    def _validate(self) -> None:
        """Top-1 and top-5 over all ranks; every image counts once."""
        assert self._held_back is not None
        counts = np.zeros(4)
        with self._throughput.paused():
            self._held_back.set_epoch(0)
            for images, labels in batches(self._held_back, self._args, training=False):
                counts += self._count(images, labels).numpy()
            images_seen, top1, top5, loss = self._ranks.sum(counts)
        figures = {"top1": top1 / images_seen, "top5": top5 / images_seen, "val_loss": loss / images_seen}
        self._log.validation(figures, self._progress["step"])
        self._progress.update(top1=figures["top1"], validated=self._progress["step"])

    @tf.function(reduce_retracing=True)
    def _count(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        scores = self._network(images)
        hits = tf.math.top_k(scores, min(5, scores.shape[1])).indices == tf.cast(labels, tf.int32)[:, None]
        first, five = tf.cast(hits[:, 0], tf.float64), tf.cast(hits, tf.float64)
        loss = tf.cast(cross_entropy(scores, labels, 0.0), tf.float64)
        return tf.stack([tf.cast(len(labels), tf.float64), *(tf.reduce_sum(part) for part in (first, five, loss))])

    def _arrays(self, with_momenta: bool = True) -> dict[str, np.ndarray]:
        kinds = {"weights": self._network.weights, "statistics": self._network.statistics}
        if with_momenta:
            kinds["momenta"] = self._momenta
        return {f"{kind}/{name}": v.numpy() for kind, variables in kinds.items() for name, v in variables.items()}

    def _save(self) -> None:
        progress = self._progress
        if self._checkpointer is not None:
            metric = progress["top1"] if progress["validated"] == progress["step"] else None
            kept = {**progress, "stream": self._stream.state()}
            self._checkpointer.save(progress["step"], self._arrays(), kept, metric=metric)

    def _resume(self) -> None:
        """Resume from a checkpoint, if there is one."""
        assert self._checkpointer is not None
        found = self._checkpointer.load()
        steps = self._ranks.gather(found.step if found else 0)
        if len(set(steps)) > 1:
            raise SystemExit(f"the ranks see checkpoints of different steps, {steps}: give a folder that all share")
        if found is None:
            return
        stream = found.progress.pop("stream")
        self._progress.update(found.progress)
        self._stream.restore(stream)
        kinds = {"weights": self._network.weights, "statistics": self._network.statistics, "momenta": self._momenta}
        for name, array in found.arrays.items():
            kind, _, own = name.partition("/")
            if own not in kinds[kind] or kinds[kind][own].shape != array.shape:
                raise SystemExit(f"the checkpoint of step {found.step} has {name}, which does not fit: other --width?")
            kinds[kind][own].assign(array)


def cross_entropy(scores: tf.Tensor, labels: tf.Tensor, smoothing: float) -> tf.Tensor:
    """The loss of each image; a part of the label is spread over all classes."""
    classes = scores.shape[1]
    wanted = tf.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes
    return tf.nn.softmax_cross_entropy_with_logits(wanted, scores)


if __name__ == "__main__":
    main()
