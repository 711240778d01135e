"""One model on one GPU and on several, with the verdicts of what the ranks add up.

    python3 tools/ranks.py target/release/tapml --ranks 2 --out ranks.json

Run it in the repository's folder, on a machine with as many GPUs that read each other's memory. It writes the checked calls of
all_reduce and all_gather, whether the texts of models/llama are equal, and the speed of an 8B shape in f16: on one GPU, on
several that meet in their memory, and on several that meet on the host.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

PROMPTS = ["Once upon a time", "The old man looked", "In the morning"]
MET = ("all_reduce", "all_gather")


def run(binary, *arguments):
    """The report of a command, which must say that all holds."""
    print("tapml", *arguments, file=sys.stderr, flush=True)
    done = subprocess.run([binary, *arguments, "--json", "-"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stdout[-4000:]}")
    return json.loads(done.stdout)


def platforms(target, ranks):
    """A list of the platforms of all ranks, as --tensor-parallel counts them on from one."""
    word, question, options = target.partition("?")
    numbered = word not in ("cpu", "emulator")
    return ",".join(word + (f":{rank}" if numbered else "") + question + options for rank in range(ranks))


def speed(binary, target, ranks, shape, prefill):
    options = ["--random", "--activation", "f16", "--prefill", str(prefill)]
    report = run(binary, "bench", "decode", shape, *options, "--target", target, "--tensor-parallel", str(ranks))
    return {key: report[key] for key in ("device", "decode", "prefill", "prefill_tokens", "bandwidth", "floor_ms")}


def text(binary, target, ranks, prompt, activation):
    options = ["--activation", activation, "--max-tokens", "64", "--prompt", prompt]
    return run(binary, "generate", "models/llama", *options, "--target", target, "--tensor-parallel", str(ranks))["text"]


def verdicts(binary, target, ranks, folder, activation):
    """The checked calls of a model's graph of all ranks."""
    suite = str(folder / f"{activation}.suite")
    options = ["--activation", activation, "--steps", "2", "--out", suite]
    run(binary, "carve", "models/llama", "--tensor-parallel", str(ranks), *options)
    ops = run(binary, "check", suite, "--target", platforms(target, ranks))["ops"]
    keys = ("op", "kernel", "cases", "failed", "worst")
    return [{key: op.get(key) for key in keys} for op in ops if op["op"] in MET]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--target", default="cuda", help="platform of rank 0, without options")
    parser.add_argument("--shape", default="tools/shapes/llama-3.1-8b")
    parser.add_argument("--prefill", type=int, nargs="*", default=[512, 2048])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    given = parser.parse_args()
    binary, host = given.binary, given.target
    peers, host = host, f"{host}?peers=off" if host == "cuda" else host
    report = {"verdicts": {}, "texts": [], "speed": []}

    def keep():
        given.out.write_text(json.dumps(report, indent=1))

    with tempfile.TemporaryDirectory() as folder:
        for activation in ("f32", "f16"):
            found = verdicts(binary, peers, given.ranks, pathlib.Path(folder), activation)
            report["verdicts"][activation] = found
            keep()
    for activation in ("f32", "f16"):
        for prompt in PROMPTS:
            one, several = (text(binary, peers, ranks, prompt, activation) for ranks in (1, given.ranks))
            found = {"prompt": prompt, "activation": activation, "equal": one == several, "one": one, "several": several}
            report["texts"].append(found)
            keep()
    for prefill in given.prefill:
        for target, ranks in ((host, 1), (peers, given.ranks), (host, given.ranks)):
            found = {"target": target, "ranks": ranks, **speed(binary, target, ranks, given.shape, prefill)}
            report["speed"].append(found)
            keep()
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
