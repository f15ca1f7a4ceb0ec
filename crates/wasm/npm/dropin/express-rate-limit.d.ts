/** The hits of a client, and when its window ends. */
export interface ClientRateLimitInfo {
  totalHits: number;
  resetTime: Date | undefined;
}

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
  constructor(options?: MemoryStoreOptions);
  readonly localKeys: boolean;
  readonly prefix: string;
  /** The length of a window, which express-rate-limit tells. */
  windowMs: number;
  init(options: { windowMs: number }): void;
  get(key: string): Promise<ClientRateLimitInfo | undefined>;
  /** @throws {FullError} `TABLE_FULL` for a new key beyond `maxBytes` */
  increment(key: string): Promise<ClientRateLimitInfo>;
  decrement(key: string): Promise<void>;
  resetKey(key: string): Promise<void>;
  resetAll(): Promise<void>;
  shutdown(): void;
}

export default MemoryStore;
