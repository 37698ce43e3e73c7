"""A classic model in one process; the model is kept because it lies in ./outputs."""

import hashlib
from pathlib import Path

import joblib
from sklearn.datasets import make_classification
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

from muster import Run

x, y = make_classification(n_samples=2000, n_features=20, n_informative=10, class_sep=2, flip_y=0, random_state=0)
model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.0003, random_state=0)
run = Run.get_context()

losses = []
for epoch in range(10):
    model.partial_fit(x, y, classes=[0, 1])
    losses.append(log_loss(y, model.predict_proba(x)))
    run.log("loss", losses[-1], step=epoch)
run.log("accuracy", model.score(x, y))

Path("outputs").mkdir(exist_ok=True)
joblib.dump(model, "outputs/model.joblib")
fingerprint = hashlib.sha256(model.coef_.tobytes()).hexdigest()[:12]
print(f"rank 0 of 1: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
