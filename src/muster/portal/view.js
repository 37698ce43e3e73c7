// The view library: every page imports it from here.
import { h, render, Fragment } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { render, Fragment };
export { useState, useEffect, useRef, useMemo, useCallback, useReducer, useLayoutEffect } from "./vendor/hooks.js";
export const html = htm.bind(h);
