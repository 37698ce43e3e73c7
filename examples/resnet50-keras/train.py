"""Trains ResNet-50 with Keras's `fit`, data parallel: Keras 3 on its backends, or tf_keras where Keras 3 cannot."""

import argparse
import itertools
import os
import signal
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import ranks as who
from data import batches, sources, stream_of
from model import resnet50
from options import completed, parser
from report import Log

from muster.training import ArrayCheckpointer, Throughput, learning_rate


def main() -> None:
    args = parser(__doc__).parse_args()
    ranks = who.join()
    on_gpu = has_gpu(ranks.keras)
    training = Training(completed(args, ranks.size, on_gpu), ranks, "gpu" if on_gpu else "cpu")
    training.run()


class Training:
    """The training of a model; `fit` has the loop over the steps, this class the one over the epochs."""

    def __init__(self, args: argparse.Namespace, ranks: who.Ranks, device: str) -> None:
        self._args, self._ranks = args, ranks
        self._source, self._held_back, self._classes = sources(args)
        # `fit` reads ahead, so one stream is read, and another follows the steps.
        self.stream = self._stream(self._source)
        self.progress: dict[str, Any] = {"step": 0, "top1": None, "validated": None}
        self.throughput = Throughput(warmup_steps=args.warmup_steps)
        self.log = Log(args, ranks, self.throughput)
        steps_of_epoch = self.stream.samples // args.global_batch
        epochs = args.epochs or args.steps / steps_of_epoch
        self.total = args.steps or round(epochs * steps_of_epoch)
        if self.total == 0:
            raise SystemExit(f"--epochs {args.epochs:g} of {self.stream.samples} images is less than one step")
        self._model = compiled(args, ranks, self._classes, [rate(args, n, epochs, self) for n in range(self.total)])
        self._checkpointer = None
        if args.checkpoints is not None or args.checkpoint_every or args.resume_from:
            self._checkpointer = ArrayCheckpointer(args.checkpoints, rank=ranks.rank, resume_from=args.resume_from)
            self._resume()
        if self._checkpointer is not None and "MUSTER_STOP_FILE" in os.environ:
            # A run that is stopped has time to save: ranks check `should_stop`, and the signal must not end them.
            signal.signal(signal.SIGTERM, lambda *_: None)
        self.log.begin(self.stream.samples, self.total, self.progress["step"], device)

    def run(self) -> None:
        progress, keras = self.progress, self._ranks.keras
        steps = steps_callback(keras, self, self._args)
        while progress["step"] < self.total and not steps.stopping:
            reader = self._stream(self._source)
            reader.restore(self.stream.state())
            count = min(len(reader), self.total - progress["step"])
            data = batches(reader, self._args, self._classes, count, training=True)
            self._model.fit(
                self._ranks.data(data), steps_per_epoch=count, epochs=1, callbacks=[steps], shuffle=False, verbose=0
            )
            self._ranks.level(self._model)
            if not steps.stopping and self._validation_is_due():
                self._validate()
            self.save()
        self.log.end(progress, self.total, progress["step"] == self.total)
        if progress["step"] == self.total:
            self._write_model()

    def _write_model(self) -> None:
        """Write a copy of the network alone, which can be loaded without this script."""
        args = self._args
        # Under a strategy every rank must take part in reading the statistics.
        weights = [variable.numpy() for variable in self._model.weights]
        if self._ranks.rank == 0:
            network = resnet50(self._ranks.keras, self._classes, args.width, args.image_size, args.weight_decay)
            network.set_weights(weights)
            network.save(args.out / "model.keras")
            print(f"{args.out}/model.keras is the model, {args.out}/throughput.json has the figures")

    def save(self) -> None:
        progress = self.progress
        if self._checkpointer is not None:
            metric = progress["top1"] if progress["validated"] == progress["step"] else None
            if hasattr(self._model, "jax_state_sync"):
                # On JAX the variables are empty during `fit`, until their values are asked back.
                self._model.jax_state_sync()
            arrays = {name: variable.numpy() for name, variable in self._variables().items()}
            self._checkpointer.save(
                progress["step"], arrays, {**progress, "stream": self.stream.state()}, metric=metric
            )

    def _resume(self) -> None:
        """Resume from a checkpoint, if there is one."""
        assert self._checkpointer is not None
        found = self._checkpointer.load()
        steps = self._ranks.gather(found.step if found else 0)
        if len(set(steps)) > 1:
            raise SystemExit(f"the ranks see checkpoints of different steps, {steps}: give a folder that all share")
        if found is None:
            return
        self.stream.restore(found.progress.pop("stream"))
        self.progress.update(found.progress)
        variables = self._variables()
        for name, array in found.arrays.items():
            if name not in variables or tuple(variables[name].shape) != array.shape:
                raise SystemExit(f"the checkpoint of step {found.step} has {name}, which does not fit: other --width?")
            variables[name].assign(array)

    def _variables(self) -> dict[str, Any]:
        """The variables of the model and its optimizer, by names that stay the same."""
        model, optimizer = self._model, self._model.optimizer
        named = {f"model/{getattr(v, 'path', v.name.split(':')[0])}": v for v in model.variables}
        return named | {f"optimizer/{number:03d}": variable for number, variable in enumerate(optimizer.variables)}

    def _validation_is_due(self) -> bool:
        """After every few epochs and after the last step."""
        is_last = self.progress["step"] == self.total
        return self._held_back is not None and (is_last or self.stream.epoch % self._args.eval_every == 0)

    def _validate(self) -> None:
        """Top-1 and top-5 over all ranks: each has its part, and its figures are weighted by its number of images."""
        assert self._held_back is not None
        with self.throughput.paused():
            stream = self._stream(self._held_back, training=False)
            steps, own = len(stream), images_of(stream)
            data = self._ranks.data(batches(stream, self._args, self._classes, steps, training=False))
            found = self._model.evaluate(data, steps=steps, verbose=0, return_dict=True)
            seen, top1, top5 = self._ranks.sum(np.array([own, own * found["top1"], own * found["top5"]]))
        figures = {"top1": float(top1 / seen), "top5": float(top5 / seen)}
        self.log.validation(figures, self.progress["step"])
        self.progress.update(top1=figures["top1"], validated=self.progress["step"])

    def _stream(self, source: Any, training: bool = True) -> Any:
        return stream_of(source, self._args, self._ranks.rank, self._ranks.size, training)


def compiled(args: argparse.Namespace, ranks: who.Ranks, classes: int, rates: list[float]) -> Any:
    """The model with its loss and optimizer; the same weights on every rank, since all have the same seed."""
    keras = ranks.keras
    keras.utils.set_random_seed(args.seed)
    if args.amp == "bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    with ranks.scope():
        model = resnet50(keras, classes, args.width, args.image_size, args.weight_decay)
        optimizer = keras.optimizers.SGD(schedule(keras, rates), momentum=args.momentum, nesterov=args.momentum > 0)
        optimizer = ranks.optimizer(optimizer)
        smoothed: dict[str, Any] = {"from_logits": True, "label_smoothing": args.label_smoothing}
        model.compile(
            optimizer,
            keras.losses.CategoricalCrossentropy(**smoothed),
            metrics=[
                # Weight decay is a penalty, so the loss that `fit` reports includes it.
                keras.metrics.CategoricalCrossentropy(name="crossentropy", **smoothed),
                keras.metrics.CategoricalAccuracy(name="top1"),
                keras.metrics.TopKCategoricalAccuracy(min(5, classes), name="top5"),
            ],
            jit_compile=keras.__name__ == "keras" and keras.backend.backend() == "jax",
        )
        optimizer.build(model.trainable_variables)
        # For tf_keras, which would add up metrics over the workers: here each has its own.
        model.distribute_reduction_method = "first"
    return model


def schedule(keras: Any, rates: list[float]) -> Any:
    """The rate of each step, as a part of the optimizer: its own count of steps is in the checkpoint."""

    # Horovod recreates the optimizer from its config, which can only hold registered classes.
    @keras.saving.register_keras_serializable("resnet50")
    class OfEachStep(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            if keras.__name__ == "keras":
                return keras.ops.take(keras.ops.convert_to_tensor(rates), keras.ops.cast(step, "int32"), axis=0)
            import tensorflow as tf

            return tf.gather(tf.constant(rates), tf.cast(step, tf.int32))

        def get_config(self) -> dict[str, Any]:
            return {}

    return OfEachStep()


def rate(args: argparse.Namespace, step: int, epochs: float, training: Any) -> float:
    """The learning rate of a step; a short training warms up for at most half of its time."""
    steps_of_epoch = training.stream.samples // args.global_batch
    epoch, done = divmod(step, steps_of_epoch)
    return learning_rate(
        epoch + done * args.global_batch / training.stream.samples,
        base=args.lr,
        scale=args.global_batch / 256,
        warmup_epochs=min(args.warmup_epochs, epochs / 2),
        decay=args.decay,
        epochs=epochs,
    )


def steps_callback(keras: Any, training: Training, args: argparse.Namespace) -> Any:
    """What happens after every step of `fit`."""

    class Steps(keras.callbacks.Callback):
        stopping = False

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            # Advanced step by step, it follows the training, not the threads that read ahead.
            self._ticks = training.stream.counted(itertools.repeat(None, len(training.stream)))
            self._logged = (0, 0.0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            next(self._ticks)
            training.throughput.step(args.batch_size)
            progress = training.progress
            progress["step"] += 1
            is_last = progress["step"] == training.total
            if progress["step"] % args.log_every == 0 or is_last:
                training.log.step(self._loss(batch + 1, float(logs["crossentropy"])), progress["step"], training.total)
                # Every rank must leave at the same step.
                if training._ranks.any(training.log.run.should_stop()):
                    self.stopping = self.model.stop_training = True
            # The last step of an epoch is saved after its validation.
            if args.checkpoint_every and progress["step"] % args.checkpoint_every == 0 and len(training.stream):
                training.save()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if not len(training.stream):
                next(self._ticks, None)

        def _loss(self, count: int, mean: float) -> float:
            """The loss of the steps since the last line: Keras has the mean since the epoch began."""
            before, was = self._logged
            self._logged = (count, mean)
            own = (count * mean - before * was) / (count - before)
            return float(training._ranks.sum(np.array([own]))[0] / training._ranks.size)

    return Steps()


def images_of(stream: Any) -> int:
    """This rank's number of images in a full validation."""
    return sum(len(batch) for batch in stream.plan().batches(0, lambda _: None))


def has_gpu(keras: Any) -> bool:
    if keras.__name__ == "keras" and keras.backend.backend() == "torch":
        import torch

        return torch.cuda.is_available()
    if keras.__name__ == "keras" and keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() == "gpu"
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


if __name__ == "__main__":
    main()
