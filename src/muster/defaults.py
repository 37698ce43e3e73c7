"""Every default figure of Muster, in one place; units are in the names."""

PROTOCOL_VERSION = 3
OLDEST_PROTOCOL = 2
"""Of agents that this server still works with: those that outlive its upgrade. A newer protocol only adds to it."""
NEWEST_PROTOCOL = PROTOCOL_VERSION + 1
"""Of agents that were upgraded before their server: what they say beyond what is known here is passed over."""

# Liveness
HEARTBEAT_S = 2.0
NODE_LOST_S = 30.0
STALE_GANG_S = 3600.0
IDLE_EXIT_S = 900.0
WATCH_S = 1.0
"""How often the server looks after nodes and clusters when nothing has changed."""
NODE_REVIVE_S = 10.0
"""How long an agent that has gone is brought back before its node is given up."""
DATABASE_AWAY_S = 20.0
"""How long a call waits for a database server that is away."""
CLOCK_JUMP_S = 1.0
"""From what on a machine's clock counts as set."""
TIDY_S = 60.0
"""How often folders of nodes that came with an attempt are removed, and how old they must be."""
STREAM_KEEPALIVE_S = 10.0
SERVER_LEAVE_S = 5.0
AGENTS_LEAVE_S = 20.0
"""How long a server that ends waits for agents without work, which may just be starting."""
STORE_ANSWER_S = 20.0
KEY_COMMAND_S = 60.0

# Calls through a shared folder
SPOOL_POLL_S = (0.02, 0.1)
"""How often the folder is looked at: while calls come, and otherwise."""
SPOOL_POLL_REMOTE_S = (0.05, 0.5)
"""The same on a network filesystem."""
SPOOL_BUSY_S = 5.0
SPOOL_CLEAN_S = 300.0
SPOOL_OLD_S = 3600.0
LINGER_S = 120.0
SLURM_POLL_S = 5.0
SLURM_WARNING_S = 60
RAY_CUT_OFF_S = 20.0
RAY_STALE_S = 900.0
RAY_LINGER_S = 600.0
ORDERS_WAIT_S = 20.0
ORDERS_WAIT_MOST_S = 60.0

# Tunnels
TUNNELS_MOST = 512
TUNNELS_PER_NODE = 128
"""How many there may be at once, those that wait for an end included."""
TUNNEL_DIAL_S = 20.0
"""In which both ends must have come."""

# Ending ranks
GRACE_FAILURE_S = 0.5
KILL_AFTER_TERM_S = 0.3
GRACE_CANCEL_S = 30.0

# Sizes
RUNS_AT_ONCE = 1000
"""How many runs one call may submit."""
CODE_LIMIT_BYTES = 1 << 30
LOG_LIMIT_BYTES = 10 << 30
ENVIRONMENTS_LIMIT_BYTES = 100 << 30
IMAGES_LIMIT_BYTES = 100 << 30
SHIP_BATCH_BYTES = 4 << 20
FILES_BODY_BYTES = 64 << 20
CACHE_SHARE_OF_DISK = 0.5
CACHE_KEEP_FREE_BYTES = 1 << 30
RESERVE_BYTES = 64 << 20
"""Kept on the workspace's disk for the server; on a small disk less, by its share."""
RESERVE_SHARE_OF_DISK = 0.1
# Azure's; the engines' own 64 MB end data loaders with a bus error.
SHM_BYTES = 2 << 30

# Ports
MASTER_PORT = 6105
TENSORFLOW_PORT = 2222
MPI_PORT = 6605
SERVER_PORT = 8910

# Retries per cause
RETRIES_PREEMPTION = 10
RETRIES_NODE_LOSS = 3
RETRIES_PLATFORM = 3
RETRIES_USER_ERROR = 0
RETRY_BACKOFF_S = 2.0
RETRY_BACKOFF_MAX_S = 300.0
CHECKPOINTS_KEPT = 2
CHECKPOINT_POLL_S = 0.25
OUTPUT_POLL_S = 2.0
OUTPUT_RETRY_S = 600.0
LISTING_RETRY_S = 60.0

# Observation
SAMPLE_S = 5.0
MAX_RUN_S = 2_592_000
LOCAL_MAX_NODES = 64

# Scheduling
SCHEDULE_AGAIN_S = 30.0
"""How often the queue is looked at while runs wait and nothing changes."""
PRIORITY_HEADSTART_S = 43_200.0
START_MARGIN_S = 120.0
# What a run takes, before anything is known of it: half end within 15 minutes, nine of ten within 5 hours.
PRIOR_MEDIAN_S = 900.0
PRIOR_SPREAD = 2.3
# Before anybody has waited: half an hour, give or take a factor of seven. Intervals hold in this share of the cases.
PRIOR_WAIT_MEDIAN_S = 1800.0
PRIOR_WAIT_SPREAD = 2.0
INTERVAL_SHARE = 0.8
# A run that says "step i of n" is as far as that, give or take a third, and more in its first minutes.
PROGRESS_SPREAD = 0.33
PROGRESS_STEADY_S = 120.0
PROGRESS_STEADY_STEPS = 50
# Progress counts from here on in the queue: before, a run is still starting.
PROGRESS_FIRST_S = 20.0
# Which quantile of what remains counts as the likely end of a run.
LIKELY_SHARE = 0.7
# A declared limit is planned with, unless it is more than this many times what nine of ten such runs take.
LIMIT_GENEROUS = 10.0
# Long runs without a limit count as queued later, by this many times their median length and at most six hours.
LENGTH_HANDICAP = 1.0
LENGTH_HANDICAP_MOST_S = 21_600.0
# By how much one that passes the first in the queue may be expected to delay it: half of what that one must still wait
# for those who were there before, and an hour until it would have started first-in-first-out. More than half a day
# never counts, and whoever passed it is among those who were there before after six hours.
DELAY_S = 3600.0
DELAY_SHARE = 0.5
DELAY_COUNTED_S = 43_200.0
GUEST_S = 21_600.0
# Whatever was expected: nobody passes it any more a week after it would have started first-in-first-out, and as long
# again as it would have waited then.
LATE_S = 604_800.0
LATE_SHARE = 1.0
# Nor after it has been passed over so often, for each node that it needs.
MAX_PASSED_OVER = 1000
# Other nodes are kept for it only where they are likely to be free so many times sooner.
KEEP_FACTOR = 4.0
# Fair shares: what was used counts half after three days, and puts a user back by half a day at most.
SHARE_HALF_LIFE_S = 259_200.0
FAIR_SHARE_MOST_S = 43_200.0
# Where a cluster allows preemption, a run with checkpoints may be paused for one that is likely to take less than
# an hour and has waited for four; never within an hour of its own start.
PAUSE_FOR_S = 3600.0
PAUSE_WAITED_S = 14_400.0
PAUSE_RAN_S = 3600.0
NODE_STRIKES = 3
IDLE_SCALEDOWN_S = 1800
NODE_START_S = 30.0
SETUP_TIMEOUT_S = 1800.0
RANK_HOOKS = ("stacks", "azureml", "local_rank", "horovod", "datawait")
"""Parts of `muster.runtime.parts` that are put into ranks unless the job sets MUSTER_HOOKS."""

# People
TOKEN_S = 90 * 86_400.0
TOKEN_MOST_S = 3660 * 86_400.0
INVITE_S = 7 * 86_400.0
TOKEN_USED_S = 300.0
"""How exactly it is remembered when a token was last used."""
SESSION_S = 12 * 3600.0
"""How long somebody stays signed in to the portal."""
SIGN_IN_LINK_S = 300.0
AUDIT_AGAIN_S = 60.0
"""How soon the same refusal, or one more file of many, is written to the audit log again."""

# Storage
GRANT_S = 3600.0
GRANT_CHECK_S = 2.0
"""How soon the server notices that a grant was revoked, or its attempt is over."""
GRANT_MAX_S = 30 * 86_400.0
PUBLISH_S = 30.0
RECORD_S = 2.0
"""How often the records of runs that have changed are written to the store."""
RECORDS_AT_ONCE = 20
"""How many of them at most; a busy server comes to the rest later."""
BACKUP_S = 3600.0
BACKUP_FIRST_S = 5.0
BACKUPS_KEPT = 5
GC_AGE_S = 86_400.0
CODE_CACHE_BYTES = 4 << 30
IMAGES_PER_SHARD = 1000

# Clients
SERVER_START_S = 60.0
CONNECT_S = 5.0
CLUSTER_WAIT_S = 1500.0
GROWING_S = 2.0
"""So often a progress bar becomes a line where there is no terminal to draw it on."""

SILENCE_S = 120.0
"""A run that has neither printed nor logged anything for so long says so, in place of its old rate."""
