"""JPEG shards on two cores: muster.training.data against WebDataset, MosaicML Streaming, LitData and ImageFolder."""
