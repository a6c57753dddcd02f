// Requests to the API. The token is sent in a header, and kept in this tab only.

const base = location.pathname.replace(/[^/]*$/, "") + "api/";
const STORED = "plimsoll-token";
const PATIENCE_MS = 10_000;

let token = sessionStorage.getItem(STORED) ?? "";

/** The error of a request: what the API says, or that it does not answer. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(text) {
  token = text;
  if (text) sessionStorage.setItem(STORED, text);
  else sessionStorage.removeItem(STORED);
}

export function headers() {
  return token ? { authorization: `Bearer ${token}` } : {};
}

export function url(path) {
  return base + path;
}

/** Sends a request, and returns the JSON of the answer. */
export async function ask(path, { method = "GET", body } = {}) {
  const request = { method, headers: headers(), signal: AbortSignal.timeout(PATIENCE_MS) };
  if (body !== undefined) {
    request.headers["content-type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(url(path), request);
    if (response.ok) return await response.json();
  } catch {
    // Also if the answer has begun and does not end: a part of it would show that there is nothing.
    throw new ApiError(0, method === "GET" ? "No data because the server does not answer."
      : "The server does not answer. The change may have been made: look before you try again.");
  }
  const answer = await response.json().catch(() => ({}));
  throw new ApiError(response.status, describe(answer, response.status));
}

function describe(problem, status) {
  const detail = problem.detail ?? `The server answers with status ${status}`;
  return problem.allowed ? `${detail}. Allowed: ${problem.allowed}.` : `${detail}.`;
}
