// A job document as YAML. Pure.

/** @param {any} value @param {string} [indent] @returns {string} */
export function asYaml(value, indent = "") {
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return value.map((one) => `${indent}- ${isPlain(one) ? scalar(one) : asYaml(one, `${indent}  `).trimStart()}`).join("\n");
  }
  const entries = Object.entries(value).filter(([, one]) => one !== null && !(isEmpty(one)));
  return entries
    .map(([name, one]) => {
      if (isBlock(one)) {
        const lines = one.replace(/\n$/, "").split("\n");
        return `${indent}${key(name)}: ${one.endsWith("\n") ? "|" : "|-"}\n${lines.map((line) => `${indent}  ${line}`).join("\n")}`;
      }
      return isPlain(one) ? `${indent}${key(name)}: ${scalar(one)}` : `${indent}${key(name)}:\n${asYaml(one, `${indent}  `)}`;
    })
    .join("\n");
}

/** Multi-line text that a block scalar can hold unchanged. @param {any} value */
const isBlock = (value) => typeof value === "string" && value.includes("\n") && /^[^\s\x00-\x1f][^\x00-\x09\x0b-\x1f\x7f]*$/.test(value) && !value.endsWith("\n\n");
const isPlain = (value) => value === null || typeof value !== "object" || isEmpty(value);
const isEmpty = (value) => typeof value === "object" && value !== null && Object.values(value).every((one) => one === null || isEmpty(one));
const key = (name) => (/^[A-Za-z_][\w.-]*$/.test(name) ? name : JSON.stringify(name));

function scalar(value) {
  if (typeof value !== "string") return isEmpty(value) ? (Array.isArray(value) ? "[]" : "{}") : JSON.stringify(value);
  const isSafe = /^[A-Za-z_./$][\w ./$@%+=,-]*$/.test(value) && !/^(true|false|yes|no|on|off|null|y|n)$/i.test(value) && !/[:#]( |$)|\s$/.test(value);
  return isSafe ? value : JSON.stringify(value);
}
