"""TITLE

Compares what the runtime gives with the exact result. Exits with 1 if they differ. Found on FOUND_ON.
"""
import glob, os, sys
import numpy as np

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), *sys.argv[1:]))  # `simplified`: simpler values
MODEL_NAMEfeed = MODEL_FILE{file[7:-4]: np.load(file) for file in sorted(glob.glob("inputs/*.npy"))}
expected, allowed = np.load("expected.npy"), np.load("allowed.npy")
LOAD
assert found.shape == expected.shape, f"expected the shape {expected.shape}, found {found.shape}"
COMPARE
