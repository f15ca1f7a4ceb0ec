/** The hits of a client, and when its window ends. */
export interface ClientRateLimitInfo {
  /** The hits in the present window. */
  totalHits: number;
  /** When the window ends. */
  resetTime: Date | undefined;
}

/** The calls of a store that counts hits, in memory or in Redis. */
export interface CountingStore {
  /** The text before each key. */
  readonly prefix: string;
  /** The length of a window, which express-rate-limit tells. */
  windowMs: number;
  /** Called by express-rate-limit with its options. */
  init(options: { windowMs: number }): void;
  /** The hits of a client, unless its window has ended. */
  get(key: string): Promise<ClientRateLimitInfo | undefined>;
  /**
   * Counts a hit.
   *
   * @throws {FullError} `TABLE_FULL` for a new key beyond `maxBytes` of a store in memory
   * @throws {LimiterError} `NOT_INITIALIZED` before `init`
   */
  increment(key: string): Promise<ClientRateLimitInfo>;
  /** Takes a hit back. */
  decrement(key: string): Promise<void>;
  /** Forgets a client. */
  resetKey(key: string): Promise<void>;
}

/** The options of the store. */
export interface MemoryStoreOptions {
  /** A text before each key. Default: none. */
  prefix?: string;
  /** The most bytes that the keys in use may take. Default: 256 MiB. */
  maxBytes?: number;
}

/**
 * A store for express-rate-limit, in place of its own `MemoryStore`. Windows begin at the first request of a client. No timer
 * runs.
 */
export class MemoryStore {
  /** Makes a store for one limiter. */
  constructor(options?: MemoryStoreOptions);
  /** Tells express-rate-limit that no other store counts the same keys. */
  readonly localKeys: boolean;
  /** Forgets all clients. */
  resetAll(): Promise<void>;
  /** Forgets all clients. */
  shutdown(): void;
}

/** The calls that both stores have. */
export interface MemoryStore extends CountingStore {}

export default MemoryStore;
