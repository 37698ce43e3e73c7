"""Parameter server training: a chief coordinates, workers compute, servers hold the variables, an evaluator watches."""

import argparse
import hashlib
import time
from pathlib import Path

import tensorflow as tf

ModelVariables = dict[str, tf.Variable]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=Path, help="a folder that chief and evaluator share, for an evaluator")
    args = parser.parse_args()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        )
        server.join()  # until Muster stops it, at the end of the chief
    elif resolver.task_type == "evaluator":
        evaluate(args.checkpoints)
    else:
        coordinate(resolver, args.checkpoints)


def coordinate(resolver: tf.distribute.cluster_resolver.ClusterResolver, checkpoints: Path | None) -> None:
    """The chief: hands out steps to the workers, and ends the run by ending itself."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        variables = model_variables()
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def step() -> tf.Tensor:
        x = tf.random.normal((64, 8))
        with tf.GradientTape() as tape:
            loss = loss_of(variables, x)
        for name, gradient in tape.gradient(loss, variables).items():
            variables[name].assign_sub(0.05 * gradient)
        return loss

    results = [coordinator.schedule(step) for _ in range(60)]
    coordinator.join()
    losses = [float(result.fetch()) for result in results]
    if checkpoints:
        path = tf.train.Checkpoint(**variables).write(str(checkpoints / "last"))
        (checkpoints / "ready").write_text(path)
        wait_for(checkpoints / "evaluated")  # a run ends with its chief, so the chief waits for the evaluator
    print(f"rank 0 of 1: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint(variables)}", flush=True)


def evaluate(checkpoints: Path) -> None:
    """The evaluator: takes no part in training, and evaluates saved checkpoints."""
    variables = model_variables()
    tf.train.Checkpoint(**variables).read(wait_for(checkpoints / "ready").read_text()).assert_consumed()
    loss = float(loss_of(variables, tf.random.normal((256, 8))))
    print(f"evaluator: loss {loss:.4f}, weights {fingerprint(variables)}", flush=True)
    (checkpoints / "evaluated").touch()


def model_variables() -> ModelVariables:
    return {
        "hidden": tf.Variable(tf.random.stateless_normal((8, 32), seed=(0, 1)) * 0.3),
        "output": tf.Variable(tf.random.stateless_normal((32, 1), seed=(0, 2)) * 0.3),
    }


def loss_of(variables: ModelVariables, x: tf.Tensor) -> tf.Tensor:
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    return tf.reduce_mean((tf.nn.relu(x @ variables["hidden"]) @ variables["output"] - y) ** 2)


def wait_for(path: Path) -> Path:
    while not path.exists():
        time.sleep(0.1)
    return path


def fingerprint(variables: ModelVariables) -> str:
    return hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in variables.values())).hexdigest()[:12]


if __name__ == "__main__":
    main()
