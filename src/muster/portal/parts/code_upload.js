// Uploads local files as the code of a job: each content once, by its hash.
import { request, send } from "../api.js";

/** @param {Uint8Array<ArrayBuffer>} bytes */
async function hash(bytes) {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {File[]} files @returns {Promise<string>} the snapshot's digest */
export async function sendCode(files) {
  if (!crypto.subtle) throw new Error("A browser sends files only over TLS, or to 127.0.0.1.");
  const contents = new Map();
  const manifest = {};
  for (const file of files) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const sha256 = await hash(bytes);
    contents.set(sha256, bytes);
    manifest[file.webkitRelativePath || file.name] = [sha256, bytes.length, 0o644];
  }
  const { digest, missing } = await send("POST", "/snapshots/missing", { files: manifest });
  if (missing.length) {
    const frames = missing.flatMap((sha256) => [`${JSON.stringify({ sha256, size: contents.get(sha256).length })}\n`, contents.get(sha256)]);
    await request("POST", "/blobs", { body: new Blob(frames, { type: "application/octet-stream" }) });
  }
  await send("PUT", `/snapshots/${digest}`, { files: manifest });
  return digest;
}
