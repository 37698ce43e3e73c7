"""The model of docs/walkthrough.md is right about every picture that it has not seen, as the page says."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.training.conftest import EXAMPLE, run_script

WALKTHROUGH = EXAMPLE.parent / "walkthrough"
SCORE = """
import json, os, sys
sys.path.append(sys.argv[1])
os.environ["MUSTER_MODEL_PATH"] = "outputs/model.pt"
import score
from pathlib import Path
score.init()
print(json.dumps(score.run([str(path) for path in sorted(Path("pictures/unseen").iterdir())])))
"""


def test_every_picture_is_told_apart(tmp_path: Path) -> None:
    run_script(tmp_path, WALKTHROUGH / "data.py", "pictures")
    run_script(tmp_path, WALKTHROUGH / "train.py", "--data", "pictures", ranks=2)
    script = tmp_path / "score_all.py"
    script.write_text(SCORE)
    lines = json.loads(run_script(tmp_path, script, str(WALKTHROUGH)).stdout)
    assert len(lines) == 40
    assert all(line.split("_")[0] == line.split(",")[1] for line in lines)
