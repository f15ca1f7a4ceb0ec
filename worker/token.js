// Verifies the signatures of tokens. WebAssembly has read the token and allowed its algorithm.
import { logError } from "./tell.js";

const ALGORITHMS = {
  HS256: { type: "oct", parts: ["k"], key: { name: "HMAC", hash: "SHA-256" } },
  RS256: { type: "RSA", parts: ["n", "e"], key: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" } },
  ES256: {
    type: "EC",
    parts: ["crv", "x", "y"],
    key: { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" },
  },
};

/** The most keys of an algorithm: each may have to be tried. */
const MOST_KEYS = 16;

/** The shortest secret of HS256, in bits (RFC 7518 §3.2). */
const SHORTEST_SECRET = 256;

/** The keys of an algorithm in the text of a binding. */
const imported = new Map();

/**
 * Whether the signature of a token holds; `undefined` if the keys are missing or cannot be used, for then a right signature
 * cannot be told from a wrong one. `token` is the text of `Isolate.token`.
 */
export async function isVerified(token, env) {
  const [algorithm, binding, signed, signature, id] = token.split("\n");
  try {
    const name = `${algorithm} ${textOf(env[binding])}`;
    if (!imported.has(name)) imported.set(name, keysOf(env[binding], algorithm));
    const keys = await imported.get(name);
    const bytes = Uint8Array.fromBase64(signature, { alphabet: "base64url" });
    const data = new TextEncoder().encode(signed);
    for (const { key, kid } of keys) {
      const isNamed = id === "" || kid === undefined || kid === id;
      if (isNamed && (await crypto.subtle.verify(ALGORITHMS[algorithm].key, key, bytes, data))) return true;
    }
    return false;
  } catch (error) {
    imported.clear();
    logError(`jwt: ${binding}`, error.message);
    return undefined;
  }
}

/** The text of a secret. The text of any other value, such as `[object Object]`, is no secret. */
function textOf(secret) {
  if (typeof secret === "string" && secret.trim() !== "") return secret;
  const found = { string: "an empty text", undefined: "no binding" }[typeof secret];
  throw new Error(`expected a text, found ${found ?? `a value of type ${typeof secret}`}`);
}

/**
 * A key is used with the one algorithm of its type alone. Otherwise a public key could be taken for a secret, and
 * everybody could sign.
 */
async function keysOf(text, algorithm) {
  const { type, parts, key } = ALGORITHMS[algorithm];
  const fits = ({ kty, alg, use }) => kty === type && (alg ?? algorithm) === algorithm && (use ?? "sig") === "sig";
  const all = jwks(text).filter(fits);
  if (all.length === 0) throw new Error(`expected a key for ${algorithm}, found none`);
  if (all.length > MOST_KEYS) throw new Error(`expected at most ${MOST_KEYS} keys for ${algorithm}, found ${all.length}`);
  return Promise.all(
    all.map(async (jwk) => {
      const needed = Object.fromEntries(["kty", ...parts].map((part) => [part, jwk[part]]));
      const made = await crypto.subtle.importKey("jwk", needed, key, false, ["verify"]);
      if (made.algorithm.length < SHORTEST_SECRET) {
        throw new Error(`expected a secret of at least 32 bytes, found ${made.algorithm.length / 8}`);
      }
      return { kid: jwk.kid, key: made };
    }),
  );
}

/** A set of keys, one key, or the text of a secret. */
function jwks(text) {
  if (!text.trimStart().startsWith("{")) {
    const k = new TextEncoder().encode(text).toBase64({ alphabet: "base64url", omitPadding: true });
    return [{ kty: "oct", k }];
  }
  const parsed = parse(text);
  const keys = parsed.keys ?? [parsed];
  const isList = Array.isArray(keys) && keys.every((key) => typeof key === "object" && key !== null);
  if (!isList) throw new Error("expected a list `keys` of objects, found something else");
  return keys;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    // the error of the runtime would show a part of the secret
    throw new Error("expected JSON, found another text that begins with `{`");
  }
}
