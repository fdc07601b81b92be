// What the admin listener responds with.

export interface Session {
  login: "not_needed" | "needed" | "done";
  may_inspect: boolean;
  may_change: boolean;
  client: string | null;
  version: string;
  expires_in_ms: number | null;
}

export interface Diagnostic {
  severity: "error" | "warning";
  file: string;
  line: number;
  column: number;
  message: string;
  hint: string | null;
}

export interface Problem {
  title: string;
  status: number;
  detail: string;
  errors?: Diagnostic[];
}

export interface StoreStatus {
  kind: "memory" | "file" | "redis";
  folder?: string;
  failure?: string | null;
  server?: string | null;
  available?: boolean;
  clock_uncertainty_us?: number;
  counters?: Record<string, number>;
  not_durable?: string | null;
  replicas?: number | null;
  replica_lag_bytes?: number | null;
  replica_lag_seconds?: number | null;
  database_keys?: number | null;
}

export interface Status {
  version: string;
  uptime_ms: number;
  enforce_ppm: number;
  edits: boolean;
  rules: number;
  shadow_rules: number;
  reload: { ok: number; failed: number; error: string | null; needs_restart: string[] };
  listeners: Record<string, string | null>;
  tokens: { count: number } | null;
}

export interface Counts {
  allowed: number;
  denied: number;
  shadow_denied: number;
}

export interface RuleCounts extends Counts {
  domain: string;
  name: string;
}

export interface Node_ {
  name: string;
  version: string;
  address?: string | null;
  seen_ms_ago: number;
  self: boolean;
}

/** One second of the daemon. */
export interface Overview extends Counts {
  time_ms: number;
  step_ms: number;
  unmatched: number;
  p50_us: number | null;
  p99_us: number | null;
  keys: number;
  max_keys: number;
  bytes: number;
  resident_bytes: number | null;
  connections: Record<string, number>;
  store: StoreStatus;
  nodes: Node_[] | null;
  degraded: string[];
  problems: string[];
  changes: number;
  rules: RuleCounts[];
}

export interface History {
  step_ms: number;
  time_ms: number[];
  allowed: number[];
  denied: number[];
  shadow_denied: number[];
  p50_us: (number | null)[];
  p99_us: (number | null)[];
  rules: {
    step_ms: number;
    time_ms: number[];
    rules: {
      domain: string;
      name: string;
      allowed: number[];
      denied: number[];
      shadow_denied: number[];
    }[];
  };
}

export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };
export type Table = { [name: string]: Json };

export interface Rule {
  domain: string;
  name: string;
  description: string;
  mode: "enforce" | "shadow";
  origin: "policy" | "edited" | "added";
  rule: Table;
  allowed: number;
  denied: number;
}

export type Key = Record<string, string | null>;

export interface RulePart {
  rule: string;
  mode: string;
  allowed: boolean;
  remaining: number | null;
  limit: number | null;
  retry_after_ms: number | null;
  reset_after_ms: number | null;
}

export interface Denial {
  decision_id: string;
  time: string;
  listener: string;
  domain: string;
  rule: string | null;
  key: Key | null;
  attributes: Record<string, string>;
  retry_after_ms: number | null;
  retry?: "never" | "unknown" | null;
  reason: string | null;
  rules: RulePart[];
}

export interface Denials {
  denials: Denial[];
  kept: number;
  oldest: string | null;
  not_kept: number;
}

export interface ExplainedRule {
  rule: string;
  applies: boolean;
  denies: boolean;
  why?: string;
  allowed?: boolean;
  mode?: string;
  key?: Key;
  cost?: number;
  override?: number | null;
  remaining?: number | null;
  limit?: number | null;
  retry_after_ms?: number | null;
  retry?: string | null;
  reset_after_ms?: number | null;
}

export interface Explanation {
  domain: string;
  time: string;
  attributes: Record<string, string>;
  cost: number;
  allowed: boolean;
  rule: string | null;
  reason: string | null;
  retry_after_ms: number | null;
  retry?: string | null;
  next_allowed: string | null;
  rules: ExplainedRule[];
}

export interface RuleUsage {
  rule: string;
  mode?: string;
  used: number;
  held: number;
  limit: number | null;
  remaining: number | null;
  share: number | null;
  reset_after_ms: number | null;
}

export interface KeyUsage extends RuleUsage {
  domain: string;
  key: Key;
  source: string;
}

export interface Estimate {
  since: string;
  until: string;
  sampled_keys: number;
  keys: number;
  share: number;
  is_exact: boolean;
  requests: number;
  denied_before: number;
  denied_after: number;
  newly_denied: number;
  no_longer_denied: number;
  keys_newly_denied: number;
  keys_no_longer_denied: number;
  top: { key: Key; requests: number; denied_before: number; denied_after: number }[];
}

export interface Preview {
  lines: string[];
  warnings: Diagnostic[];
  rules: {
    domain: string;
    rule: string;
    description: string;
    starts_fresh: boolean;
    estimate: Estimate | null;
    why_not: string | null;
  }[];
}

export interface Change {
  number: number;
  at: string;
  actor: string;
  description: string;
  what: string;
  domain?: string | null;
  rule?: string | null;
  before?: string | null;
  after?: string | number | null;
  starts_fresh?: boolean;
  keys?: number;
}

export interface TopKey {
  domain: string;
  rule: string;
  key: [string, string | null][];
  count: number;
  error: number;
}

export type Matches = Record<string, string | number | (string | number)[]>;

export interface Ban {
  domain: string;
  match: Matches;
  until?: string;
  reason?: string;
}

export interface OverrideEntry {
  domain: string;
  rule: string;
  key: Matches;
  until?: string;
  unlimited?: boolean;
  [limit: string]: unknown;
}
