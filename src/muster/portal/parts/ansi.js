// Terminal output as text with colours. All other control sequences are removed. Pure.

const COLORS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// Terminal sequences: colours, other commands, titles and links (up to their end), single characters.
const SEQUENCE = /\x1b\[([0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** The visible rest of a line whose beginning was overwritten. @param {string} line */
export function overwritten(line) {
  const kept = line.endsWith("\r") ? line.slice(0, -1) : line;
  return kept.slice(kept.lastIndexOf("\r") + 1);
}

/** A line without control sequences. @param {string} line */
export function plain(line) {
  return overwritten(line).replace(SEQUENCE, "");
}

/** A line split into pieces of one style each. @param {string} line @returns {[string, string][]} class and text */
export function pieces(line) {
  const found = [];
  let look = { color: "", bold: false, dim: false };
  let from = 0;
  const text = overwritten(line);
  const add = (to) => {
    if (to > from) found.push([classOf(look), text.slice(from, to)]);
  };
  for (const match of text.matchAll(SEQUENCE)) {
    add(match.index);
    from = match.index + match[0].length;
    if (match[1] !== undefined) look = after(look, match[1]);
  }
  add(text.length);
  return found;
}

function classOf(look) {
  return [look.color && `a-${look.color}`, look.bold && "a-bold", look.dim && "a-dim"].filter(Boolean).join(" ");
}

function after(look, codes) {
  const numbers = codes === "" ? [0] : codes.split(/[;:]/).map(Number);
  const next = { ...look };
  for (let i = 0; i < numbers.length; i += 1) {
    const code = numbers[i];
    if (code === 0) Object.assign(next, { color: "", bold: false, dim: false });
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 22) Object.assign(next, { bold: false, dim: false });
    else if (code === 39) next.color = "";
    else if (code >= 30 && code <= 37) next.color = COLORS[code - 30];
    else if (code >= 90 && code <= 97) next.color = COLORS[code - 90];
    else if (code === 38 || code === 48) {
      // One of 256 colours, or a mixed one.
      const isIndexed = numbers[i + 1] === 5;
      if (code === 38 && isIndexed && numbers[i + 2] < 16) next.color = COLORS[numbers[i + 2] % 8];
      i += isIndexed ? 2 : 4;
    }
  }
  return next;
}
