"""What docs/TOPICS.md shows is what happens."""

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "TOPICS.md"


def test_the_examples_of_the_guide_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    names: dict = {}
    for block in blocks:
        exec(block, names)  # as a reader would, one after the other
    assert len(capsys.readouterr().out.splitlines()) == 5
