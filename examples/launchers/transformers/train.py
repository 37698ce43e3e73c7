"""Trains a small BERT from scratch with the Hugging Face Trainer to tell two kinds of sequences apart."""

import hashlib
import sys
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments


class Sequences(Dataset):
    """Sequences of tokens; those of class 1 hold larger ones."""

    def __init__(self, count: int) -> None:
        random = torch.Generator().manual_seed(0)
        self.labels = torch.randint(0, 2, (count,), generator=random)
        self.tokens = torch.randint(0, 50, (count, 16), generator=random) + 40 * self.labels[:, None]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


# All of the Trainer's own arguments can be given. On CPUs it needs `use_cpu`, or each process trains by itself.
defaults = {
    "output_dir": "outputs",
    "use_cpu": str(not torch.cuda.is_available()),
    "dataloader_pin_memory": str(torch.cuda.is_available()),
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": "true",
}
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
    [*(part for name, value in defaults.items() for part in (f"--{name}", value)), *sys.argv[1:]]
)
torch.manual_seed(0)
config = BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, num_labels=2
)
model = BertForSequenceClassification(config)
trainer = Trainer(model=model, args=args, train_dataset=Sequences(1024))
trainer.train()

losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
weights = torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])
fingerprint = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]
rank, world_size = args.process_index, args.world_size
first, last = float(losses[0]), float(losses[-1])
print(f"rank {rank} of {world_size}: loss {first:.4f} -> {last:.4f}, weights {fingerprint}")
time.sleep(0.5)  # a process that ends while a thread of Gloo still holds the last gradients can hang or abort
