#!/usr/bin/env python3
"""What share of a device's speed is left through the wire: `tapml generate` here and behind an agent, by turns.

python3 tools/wire_share.py models/llama --target vulkan --tapml target/debug/tapml

Prints tokens a second as medians, and the share as the median of the pairs with its range.
"""
import argparse, json, re, statistics, subprocess


def serve(options):
    """An agent on a free port, and the word for its device."""
    command = [options.tapml, "device", "serve", "--listen", "127.0.0.1:0", "--target", options.target]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    place = re.search(r"ws://[0-9.:]+[0-9]", agent.stdout.readline()).group()
    return agent, f"{place}/{options.target.split('?')[0]}"


def generate(options, target):
    """Tokens a second of one run, and the tokens."""
    command = [options.tapml, "generate", options.model, "--prompt", "Once upon a time", "--ignore-eos", "--json", "-"]
    command += ["--max-tokens", str(options.tokens), "--target", target]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    # The first token comes out of the prefill.
    return (len(report["ids"]) - 1) / report["seconds"]["decode"], report["ids"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--target", default="emulator")
    parser.add_argument("--tapml", default="target/debug/tapml")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=15)
    options = parser.parse_args()
    agent, there = serve(options)
    try:
        # Drivers compile and cache in the first runs.
        pairs = [[generate(options, target) for target in (options.target, there)] for _ in range(options.pairs + 1)][1:]
    finally:
        agent.terminate()
        agent.wait()
    here, far = ([pair[i][0] for pair in pairs] for i in (0, 1))
    shares = [b / a for a, b in zip(here, far)]
    if any(a[1] != b[1] for a, b in pairs):
        raise SystemExit("the tokens differ")
    print(f"{options.tokens} tokens, {options.pairs} pairs on {options.target}: the tokens were equal in each")
    print(f"here  {statistics.median(here):.1f} tokens/s ({min(here):.1f} to {max(here):.1f})")
    print(f"there {statistics.median(far):.1f} tokens/s ({min(far):.1f} to {max(far):.1f})")
    print(f"share {statistics.median(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})")


if __name__ == "__main__":
    main()
