"""Why a job failed: the grammar of logs, the rules over what it finds, and the judgement. Pure."""
