-- The schema of the first databases, revision 0001, as SQLite has it.
CREATE TABLE alembic_version (
  version_num VARCHAR(32) NOT NULL, 
  CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE attempts (
  run_id VARCHAR(255) NOT NULL, 
  number INTEGER NOT NULL, 
  status VARCHAR(32) NOT NULL, 
  created_at FLOAT NOT NULL, 
  started_at FLOAT, 
  ended_at FLOAT, 
  stop_reason VARCHAR(32), 
  stop_grace_s FLOAT, 
  timed_out BOOLEAN NOT NULL, 
  "plan" JSON, 
  verdict JSON, 
  PRIMARY KEY (run_id, number)
);
CREATE TABLE checkpoints (
  id INTEGER NOT NULL, 
  run_id VARCHAR(255) NOT NULL, 
  attempt INTEGER NOT NULL, 
  node_rank INTEGER NOT NULL, 
  name TEXT NOT NULL, 
  "key" VARCHAR(64) NOT NULL, 
  files JSON NOT NULL, 
  size BIGINT NOT NULL, 
  at FLOAT NOT NULL, 
  PRIMARY KEY (id), 
  UNIQUE (run_id, attempt, node_rank, "key")
);
CREATE TABLE clusters (
  name VARCHAR(255) NOT NULL, 
  engine VARCHAR(32) NOT NULL, 
  options JSON NOT NULL, 
  state VARCHAR(16) NOT NULL, 
  created_at FLOAT NOT NULL, 
  PRIMARY KEY (name)
);
CREATE TABLE datastores (
  name VARCHAR(255) NOT NULL, 
  kind VARCHAR(32) NOT NULL, 
  options JSON NOT NULL, 
  created_at FLOAT NOT NULL, 
  PRIMARY KEY (name)
);
CREATE TABLE events (
  id INTEGER NOT NULL, 
  run_id VARCHAR(255) NOT NULL, 
  at FLOAT NOT NULL, 
  kind VARCHAR(32) NOT NULL, 
  data JSON NOT NULL, 
  PRIMARY KEY (id)
);
CREATE TABLE files (
  run_id VARCHAR(255) NOT NULL, 
  attempt INTEGER NOT NULL, 
  path TEXT NOT NULL, 
  node_rank INTEGER NOT NULL, 
  size BIGINT NOT NULL, 
  sha256 VARCHAR(64) NOT NULL, 
  PRIMARY KEY (run_id, attempt, path, node_rank)
);
CREATE TABLE metrics (
  id INTEGER NOT NULL, 
  run_id VARCHAR(255) NOT NULL, 
  attempt INTEGER NOT NULL, 
  source VARCHAR(255) NOT NULL, 
  name VARCHAR(255) NOT NULL, 
  type VARCHAR(16) NOT NULL, 
  value JSON NOT NULL, 
  step FLOAT, 
  at FLOAT NOT NULL, 
  PRIMARY KEY (id)
);
CREATE TABLE models (
  name VARCHAR(255) NOT NULL, 
  version INTEGER NOT NULL, 
  run_id VARCHAR(255), 
  path TEXT NOT NULL, 
  description TEXT, 
  tags JSON NOT NULL, 
  properties JSON NOT NULL, 
  created_at FLOAT NOT NULL, 
  PRIMARY KEY (name, version)
);
CREATE TABLE node_history (
  id INTEGER NOT NULL, 
  cluster VARCHAR(255) NOT NULL, 
  name VARCHAR(255) NOT NULL, 
  at FLOAT NOT NULL, 
  state VARCHAR(16) NOT NULL, 
  reason TEXT NOT NULL, 
  PRIMARY KEY (id)
);
CREATE TABLE node_states (
  cluster VARCHAR(255) NOT NULL, 
  name VARCHAR(255) NOT NULL, 
  state VARCHAR(16) NOT NULL, 
  reason TEXT NOT NULL, 
  since FLOAT NOT NULL, 
  cordoned TEXT, 
  strikes INTEGER NOT NULL, 
  PRIMARY KEY (cluster, name)
);
CREATE TABLE nodes (
  cluster VARCHAR(255) NOT NULL, 
  name VARCHAR(255) NOT NULL, 
  agent VARCHAR(64), 
  host TEXT, 
  address TEXT, 
  pid INTEGER, 
  cpus INTEGER, 
  memory_bytes BIGINT, 
  gpus JSON, 
  version VARCHAR(64), 
  seen_at FLOAT, 
  PRIMARY KEY (cluster, name)
);
CREATE TABLE placements (
  run_id VARCHAR(255) NOT NULL, 
  number INTEGER NOT NULL, 
  node_rank INTEGER NOT NULL, 
  cluster VARCHAR(255) NOT NULL, 
  node VARCHAR(255) NOT NULL, 
  host VARCHAR(255) NOT NULL, 
  address VARCHAR(255) NOT NULL, 
  cpus INTEGER NOT NULL, 
  gpus JSON NOT NULL, 
  ranks INTEGER NOT NULL, 
  phase VARCHAR(16) NOT NULL, 
  lost BOOLEAN NOT NULL, 
  ports JSON NOT NULL, 
  refusal JSON, 
  price_per_hour FLOAT, 
  leaving BOOLEAN NOT NULL, 
  resumed BIGINT, 
  PRIMARY KEY (run_id, number, node_rank)
);
CREATE TABLE ranks (
  run_id VARCHAR(255) NOT NULL, 
  number INTEGER NOT NULL, 
  rank INTEGER NOT NULL, 
  node_rank INTEGER NOT NULL, 
  role VARCHAR(32) NOT NULL, 
  essential BOOLEAN NOT NULL, 
  log TEXT NOT NULL, 
  state VARCHAR(16) NOT NULL, 
  pid INTEGER, 
  started_at FLOAT, 
  ended_at FLOAT, 
  exit_code INTEGER, 
  signal INTEGER, 
  expected BOOLEAN NOT NULL, 
  evidence JSON NOT NULL, 
  PRIMARY KEY (run_id, number, rank)
);
CREATE TABLE runs (
  seq INTEGER NOT NULL, 
  id VARCHAR(255) NOT NULL, 
  "key" VARCHAR(255) NOT NULL, 
  name VARCHAR(255), 
  display_name TEXT, 
  experiment VARCHAR(255) NOT NULL, 
  status VARCHAR(32) NOT NULL, 
  created_at FLOAT NOT NULL, 
  queued_at FLOAT, 
  started_at FLOAT, 
  ended_at FLOAT, 
  spec JSON NOT NULL, 
  snapshot VARCHAR(64), 
  python TEXT, 
  submitted_by TEXT, 
  compute VARCHAR(255) NOT NULL, 
  priority INTEGER NOT NULL, 
  num_nodes INTEGER NOT NULL, 
  num_ranks INTEGER NOT NULL, 
  ranks_per_node INTEGER NOT NULL, 
  gpus_per_node INTEGER, 
  timeout_s FLOAT, 
  preemptible BOOLEAN, 
  attempt INTEGER NOT NULL, 
  cancel VARCHAR(16), 
  cancel_by TEXT, 
  tags JSON NOT NULL, 
  description TEXT, 
  notices JSON NOT NULL, 
  progress JSON, 
  verdict JSON, 
  retry_at FLOAT, 
  excluded_nodes JSON, 
  budget_from INTEGER, 
  PRIMARY KEY (seq), 
  UNIQUE (id), 
  UNIQUE ("key")
);
CREATE TABLE snapshots (
  digest VARCHAR(64) NOT NULL, 
  num_files INTEGER NOT NULL, 
  size BIGINT NOT NULL, 
  created_at FLOAT NOT NULL, 
  PRIMARY KEY (digest)
);
CREATE TABLE streams (
  run_id VARCHAR(255) NOT NULL, 
  attempt INTEGER NOT NULL, 
  stream VARCHAR(255) NOT NULL, 
  parsed BIGINT NOT NULL, 
  PRIMARY KEY (run_id, attempt, stream)
);
CREATE TABLE tokens (
  hash VARCHAR(64) NOT NULL, 
  role VARCHAR(16) NOT NULL, 
  subject VARCHAR(255) NOT NULL, 
  created_at FLOAT NOT NULL, 
  expires_at FLOAT, 
  PRIMARY KEY (hash), 
  UNIQUE (role, subject, hash)
);
CREATE INDEX events_run ON events (run_id, id);
CREATE INDEX metrics_run ON metrics (run_id, id);
CREATE INDEX node_history_cluster ON node_history (cluster, name, id);
CREATE INDEX placements_active ON placements (phase, cluster, node);
CREATE INDEX runs_name ON runs (name);
CREATE INDEX runs_queue ON runs (status, priority, seq);
