"""Training on documents takes memory that hardly grows with them: rows, words and dual variables are in files."""

import os
import subprocess
import sys

import numpy as np
import pytest

# What may be in memory is made small, so that few documents show what many would do.
TRAIN = """
import sys, threading, time
from labelfield.cli.main import main
from labelfield.inference import margin_rows, trials
from labelfield.models.linear import plan
from labelfield.text import coded, words

margin_rows.COPIED_BYTES, margin_rows._WINDOW_ENTRIES, trials._MOST_ENTRIES, plan._MOST_HELD_OUT = 0, 1 << 18, 0, 500
trials._TRAINED_ROWS, trials._MOST_ROWS = 500, 200
coded._IN_MEMORY = words._MOST_WORDS_IN_MEMORY = words._MOST_IN_MEMORY = 1 << 12
peak = [0]

def watch():
    while True:
        with open("/proc/self/status") as file:
            peak[0] = max(peak[0], *(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon")))
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
try:
    main()
finally:
    print("peak", peak[0])
"""
# Bytes per document; the text of one has 400, and its row has 100 entries of 8 bytes, of which each thread had a copy.
MOST_PER_DOCUMENT = 300


def write(path, n):
    rng = np.random.default_rng(0)
    words = np.array([f"word{number:03d}" for number in range(400)])
    text = words[rng.integers(0, 400, (n, 50))]
    with open(path, "w") as file:
        file.write("id\ttext\tlabels\n")
        for number, own in enumerate(text):
            file.write(f"{number}\t{' '.join(own)}\t{'|'.join(sorted({word[-1:] for word in own[:3]}))}\n")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is measured where the system tells it")
def test_memory_hardly_grows_with_documents(tmp_path):
    sizes, peaks = (20_000, 120_000), []
    for n in sizes:
        path = tmp_path / f"{n}.tsv"
        write(path, n)
        command = [sys.executable, "-c", TRAIN, "train", path, "--out", tmp_path / f"model-{n}", "--method", "linear"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert found.returncode == 0, found.stderr
        peaks.append(int(found.stdout.split()[-1]))
    assert (peaks[1] - peaks[0]) / (sizes[1] - sizes[0]) < MOST_PER_DOCUMENT
