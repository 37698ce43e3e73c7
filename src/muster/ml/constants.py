"""Constants of v2 scripts: strings under their names."""

from __future__ import annotations


class AssetTypes:
    """Types of data."""

    URI_FILE = "uri_file"
    URI_FOLDER = "uri_folder"
    MLTABLE = "mltable"
    CUSTOM_MODEL = "custom_model"
    MLFLOW_MODEL = "mlflow_model"
    TRITON_MODEL = "triton_model"


class ModelType:
    """Types of models."""

    CUSTOM = "custom_model"
    MLFLOW = "mlflow_model"
    TRITON = "triton_model"


class InputOutputModes:
    """How a job accesses data."""

    MOUNT = "mount"
    DOWNLOAD = "download"
    UPLOAD = "upload"
    RO_MOUNT = "ro_mount"
    RW_MOUNT = "rw_mount"
    DIRECT = "direct"
    EVAL_MOUNT = "eval_mount"
    EVAL_DOWNLOAD = "eval_download"


class ListViewType:
    """What lists show; here archived jobs stay in their list."""

    ACTIVE_ONLY = "ActiveOnly"
    ARCHIVED_ONLY = "ArchivedOnly"
    ALL = "All"


class BatchDeploymentOutputAction:
    """The output of a batch deployment."""

    APPEND_ROW = "append_row"
    SUMMARY_ONLY = "summary_only"


__all__ = ["AssetTypes", "BatchDeploymentOutputAction", "InputOutputModes", "ListViewType", "ModelType"]
