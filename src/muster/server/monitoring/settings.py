"""Where telemetry goes: `muster up --otlp`, the key `otlp` of workspace.json, or OpenTelemetry's own variables."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from muster.errors import UserError
from muster.host.extras import install_command
from muster.wire.codec import Json

log = logging.getLogger("muster.server")

ENDPOINT, HEADERS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"
_KEYS = {"endpoint", "headers_file"}
_EXAMPLE = '{"otlp": {"endpoint": "http://127.0.0.1:4318"}}'


@dataclass(frozen=True)
class TelemetrySettings:
    """A collector that takes OTLP over HTTP."""

    endpoint: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_telemetry(option: str | None, config: Json, environ: MutableMapping[str, str]) -> TelemetrySettings | None:
    """The first source that is set; None: nothing is exported. Removes headers from the environment of ranks."""
    headers = _headers(environ.pop(HEADERS, ""))
    if option:
        return _checked(TelemetrySettings(option, headers), "--otlp")
    if config is not None:
        return _checked(_configured(config, headers), "`otlp.endpoint` in workspace.json")
    if endpoint := environ.get(ENDPOINT):
        try:
            return _checked(TelemetrySettings(endpoint, headers), ENDPOINT)
        except UserError as error:
            # It may be meant for other programs: not a reason to fail.
            log.warning("no telemetry is exported: %s %s", error.message, error.hint)
    return None


def _configured(config: Json, headers: Mapping[str, str]) -> TelemetrySettings:
    if not isinstance(config, Mapping) or not config.keys() <= _KEYS or not isinstance(config.get("endpoint"), str):
        raise UserError(f"`otlp` in workspace.json holds {', '.join(sorted(_KEYS))}; `endpoint` is needed.", _EXAMPLE)
    if (path := config.get("headers_file")) is not None:
        try:
            headers = _headers(Path(str(path)).read_text().strip())
        except OSError as error:
            raise UserError(
                f"`otlp.headers_file` in workspace.json, {path}, cannot be read: {error.strerror}"
            ) from error
    return TelemetrySettings(str(config["endpoint"]), headers)


def _checked(settings: TelemetrySettings, where: str) -> TelemetrySettings:
    parts = urlsplit(settings.endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            f"{where} is {settings.endpoint!r}: it takes the address of a collector of OTLP over HTTP.",
            "Such as http://127.0.0.1:4318; /v1/traces, /v1/metrics and /v1/logs are added to it.",
        )
    try:
        found = find_spec("opentelemetry.proto.collector")
    except ModuleNotFoundError:
        found = None
    if found is None:
        missing = f"Install it where the server runs: {install_command('otel')}."
        raise UserError(f"{where} needs OpenTelemetry's messages, which are not installed.", missing)
    return settings


def _headers(text: str) -> dict[str, str]:
    """`name=value,name=value`, quoted as in addresses: the form of OpenTelemetry's variable."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
