"""Check the portal's modules with TypeScript, against types out of the server's own OpenAPI document."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from muster.server.http.app import ROUTERS

ROOT = Path(__file__).parents[1]
PORTAL = ROOT / "src" / "muster" / "portal"
TOOLS = Path(os.environ.get("MUSTER_TEST_TOOLS", Path.home() / ".cache" / "muster-tests")) / "typescript"
VENDOR = {
    "preact.js": 'export * from "preact";',
    "hooks.js": 'export * from "preact/hooks";',
    "htm.js": "declare const htm: { bind(h: unknown): (text: TemplateStringsArray, ...values: any[]) => any };\n"
    "export default htm;",
    "uplot.js": "declare const uPlot: any;\nexport default uPlot;",
}
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def main() -> None:
    """Lay the modules out beside their types, and have `tsc` look at them."""
    folder = ROOT / "build" / "portal-types"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PORTAL, folder, ignore=shutil.ignore_patterns("vendor", "*.html", "*.css", "*.svg"))
    (folder / "vendor").mkdir()
    for name, text in VENDOR.items():
        (folder / "vendor" / name).with_suffix(".d.ts").write_text(f"{text}\n")
    (folder / "types.d.ts").write_text(declarations(document()))
    modules = TOOLS / "node_modules"
    (folder / "node_modules").symlink_to(modules)
    options = {
        "allowJs": True, "checkJs": True, "noEmit": True, "strict": True, "noImplicitAny": False,
        "strictNullChecks": False, "useUnknownInCatchVariables": False, "target": "ES2022", "module": "ES2022",
        "moduleResolution": "bundler", "lib": ["ES2023", "DOM", "DOM.Iterable"], "types": [],
    }  # fmt: skip
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["**/*.js", "*.d.ts"]}))
    program = modules / ".bin" / "tsc"
    if not program.exists():
        sys.exit(f"{program} is missing: `make system` installs TypeScript.")
    sys.exit(subprocess.run([str(program), "-p", str(folder), "--pretty", "false"], check=False).returncode)


def document() -> Mapping[str, Any]:
    """The OpenAPI document, without a server."""
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router, prefix="/api/v1")
    return app.openapi()


def declarations(found: Mapping[str, Any]) -> str:
    """The messages of the API as TypeScript. Pure."""
    schemas = found["components"]["schemas"]
    lines = [f"    {json.dumps(name)}: {_type(schema)};" for name, schema in sorted(schemas.items())]
    return "\n".join(["export interface components {", "  schemas: {", *lines, "  };", "}", ""])


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return f'components["schemas"][{json.dumps(schema["$ref"].rpartition("/")[2])}]'
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(f"({_type(option)})" for option in options)
    kind = schema.get("type")
    if kind == "array":
        return f"({_type(schema.get('items', {}))})[]"
    if kind == "object" and "properties" in schema:
        needed = set(schema.get("required", ()))
        fields = (
            f"{json.dumps(name)}{'' if name in needed else '?'}: {_type(inner)}"
            for name, inner in schema["properties"].items()
        )
        return f"{{ {'; '.join(fields)} }}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"Record<string, {_type(inner) if isinstance(inner, Mapping) else 'any'}>"
    return _PLAIN.get(str(kind), "any")


if __name__ == "__main__":
    main()
