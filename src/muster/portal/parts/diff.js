// A line-by-line diff of two texts. Pure.

const MOST = 4000;

/** @param {string} before @param {string} after @returns {{kind: "same" | "add" | "del", text: string}[]} */
export function difference(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let begin = 0;
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin += 1;
  let end = 0;
  while (end < a.length - begin && end < b.length - begin && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const same = (lines) => lines.map((text) => ({ kind: "same", text }));
  const middle = between(a.slice(begin, a.length - end), b.slice(begin, b.length - end));
  return /** @type {any} */ ([...same(a.slice(0, begin)), ...middle, ...same(end ? a.slice(-end) : [])]);
}

/** The longest common subsequence stays; texts that are too long for that differ as a whole. */
function between(a, b) {
  if (a.length > MOST || b.length > MOST || a.length * b.length > 4e6) {
    return [...a.map((text) => ({ kind: "del", text })), ...b.map((text) => ({ kind: "add", text }))];
  }
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const found = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ kind: "same", text: a[i] });
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      found.push({ kind: "del", text: a[i] });
      i += 1;
    } else {
      found.push({ kind: "add", text: b[j] });
      j += 1;
    }
  }
  return found;
}

/** Only changes and their context; a number stands for lines that are left out. @param {any[]} lines */
export function folded(lines, around = 3) {
  const near = new Array(lines.length).fill(false);
  lines.forEach((line, index) => {
    if (line.kind === "same") return;
    for (let i = Math.max(0, index - around); i <= Math.min(lines.length - 1, index + around); i += 1) near[i] = true;
  });
  const found = [];
  let left = 0;
  lines.forEach((line, index) => {
    if (near[index]) {
      if (left) found.push({ kind: "gap", text: `… ${left} lines that are the same` });
      left = 0;
      found.push(line);
    } else left += 1;
  });
  if (left) found.push({ kind: "gap", text: `… ${left} lines that are the same` });
  return found;
}
