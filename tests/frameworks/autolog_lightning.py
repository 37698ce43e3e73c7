"""A training script as users of Lightning and MLflow have it: `mlflow.pytorch.autolog()`, then the trainer."""

import lightning as pl
import mlflow
import mlflow.pytorch
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(pl.LightningModule):
    """Learns y = 2x + 1."""

    def __init__(self, learning_rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self(x), y)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.hparams.learning_rate)


pl.seed_everything(1)
x = torch.linspace(-1, 1, 64).reshape(-1, 1)
data = DataLoader(TensorDataset(x, 2 * x + 1), batch_size=16, num_workers=0)
mlflow.pytorch.autolog()
trainer = pl.Trainer(max_epochs=5, accelerator="cpu", enable_progress_bar=False, log_every_n_steps=1)
with mlflow.start_run() as run:
    model = Line()
    trainer.fit(model, data, data)
    if mlflow.__version__ < "3":
        uri = f"runs:/{run.info.run_id}/model"
    else:
        uri = mlflow.search_logged_models(output_format="list")[0].model_uri
again = mlflow.pytorch.load_model(uri)
assert torch.allclose(again(x), model(x))
print("loaded the model again")
