// Verifies the signatures of tokens. WebAssembly has read the token and allowed its algorithm.

const ALGORITHMS = {
  HS256: { type: "oct", parts: ["k"], key: { name: "HMAC", hash: "SHA-256" } },
  RS256: { type: "RSA", parts: ["n", "e"], key: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" } },
  ES256: {
    type: "EC",
    parts: ["crv", "x", "y"],
    key: { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" },
  },
};

/** The keys of an algorithm in the text of a binding. */
const imported = new Map();

/** Whether the signature of a token holds. `token` is the text of `Isolate.token`. */
export async function isVerified(token, env) {
  const [algorithm, binding, signed, signature, id] = token.split("\n");
  try {
    const text = String(env[binding] ?? "");
    const name = `${algorithm} ${text}`;
    if (!imported.has(name)) imported.set(name, keysOf(text, algorithm));
    const keys = await imported.get(name);
    if (keys.length === 0) throw new Error(`expected a key for ${algorithm} in the binding ${binding}, found none`);
    const bytes = Uint8Array.fromBase64(signature, { alphabet: "base64url" });
    const data = new TextEncoder().encode(signed);
    for (const { key, kid } of keys) {
      const isNamed = id === "" || kid === undefined || kid === id;
      if (isNamed && (await crypto.subtle.verify(ALGORITHMS[algorithm].key, key, bytes, data))) return true;
    }
  } catch (error) {
    imported.clear();
    console.error("jwt:", error);
  }
  return false;
}

/**
 * A key is used with the one algorithm of its type alone. Otherwise a public key could be taken for a secret, and
 * everybody could sign.
 */
async function keysOf(text, algorithm) {
  const { type, parts, key } = ALGORITHMS[algorithm];
  const fits = ({ kty, alg, use }) => kty === type && (alg ?? algorithm) === algorithm && (use ?? "sig") === "sig";
  const all = jwks(text).filter(fits).slice(0, 16);
  return Promise.all(
    all.map(async (jwk) => {
      const needed = Object.fromEntries(["kty", ...parts].map((part) => [part, jwk[part]]));
      return { kid: jwk.kid, key: await crypto.subtle.importKey("jwk", needed, key, false, ["verify"]) };
    }),
  );
}

/** A set of keys, one key, or the text of a secret. */
function jwks(text) {
  if (text === "") return [];
  if (!text.trimStart().startsWith("{")) {
    const k = new TextEncoder().encode(text).toBase64({ alphabet: "base64url", omitPadding: true });
    return [{ kty: "oct", k }];
  }
  const parsed = JSON.parse(text);
  return parsed.keys ?? [parsed];
}
