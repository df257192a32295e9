"""A stand-in for our models, for tests of the commands around them; it takes the same task and gives the same answer.

It ranks labels by their frequency, and starts in a tenth of the time: it needs no torch.
"""

import json
import sys
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text())
    if asked["options"].get("kernel") == "round":
        raise ValueError("kernel 'round'; expected another")
    held = [line.split(" ")[0] for line in Path(asked["train"]).read_text().splitlines()[1:]]
    counts = Counter(label for row in held for label in row.split(",") if label)
    line = " ".join(f"{label}:{count / len(held)}" for label, count in counts.most_common(asked["k"]))
    n_rows = len(Path(asked["test"]).read_text().splitlines()) - 1
    Path(asked["predictions"]).write_text(f"{line}\n" * n_rows)
    bounds = [-3.0, -2.0][: asked["options"]["max_epochs"]]
    answer = {"train_seconds": 0.1, "predict_seconds": 0.1, "model_bytes": 1, "epochs": len(bounds), "scores": {}}
    answer |= {"bound": bounds[-1], "history": {"bound": bounds, "seconds": [0.1] * len(bounds)}}
    Path(asked["answer"]).write_text(json.dumps(answer))
